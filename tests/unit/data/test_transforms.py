"""Functions, filters, batches and their rows: passes, positions and specs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import UNKNOWN_CARDINALITY, Dataset, TensorSpec
from stratagem.data.nodes import elements_of
from stratagem.data.transforms import Batched, call, in_element_function, name_of


def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


def test_a_tuple_is_spread_over_the_arguments() -> None:
    assert call(lambda a, b: a - b, (5, 3)) == 2
    assert call(lambda element: element["a"], {"a": 7}) == 7


def test_a_function_knows_that_it_is_called_on_an_element() -> None:
    assert call(lambda x: in_element_function(), 1)
    assert not in_element_function()
    with pytest.raises(ZeroDivisionError):
        call(lambda x: x / 0, 1)
    assert not in_element_function()


@pytest.mark.parametrize(
    ("build", "elements", "cardinality"),
    [
        (lambda: Dataset.range(3).map(double), [0, 2, 4], 3),
        (lambda: Dataset.range(6).filter(lambda x: x > 3), [4, 5], UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(5).batch(2), [[0, 1], [2, 3], [4]], 3),
        (lambda: Dataset.range(5).batch(2, drop_remainder=True), [[0, 1], [2, 3]], 2),
        (lambda: Dataset.range(5).batch(2).batch(2, drop_remainder=True), [[[0, 1], [2, 3]]], 1),
        (lambda: Dataset.range(4).batch(2, drop_remainder=True).unbatch(), [0, 1, 2, 3], 4),
        (lambda: Dataset.range(5).batch(2).unbatch(), [0, 1, 2, 3, 4], UNKNOWN_CARDINALITY),
        (lambda: Dataset.range(4).batch(2).map(double).unbatch(), [0, 2, 4, 6], UNKNOWN_CARDINALITY),
    ],
)
def test_elements_and_skips(build: Callable[[], Dataset], elements: list, cardinality: int) -> None:
    node = build()._node
    assert node.cardinality() == cardinality
    for skipped in range(len(elements) + 1):
        stream = node.stream((0,))
        assert stream.skip(skipped) == skipped
        assert [np.asarray(x).tolist() for x in elements_of(stream)] == elements[skipped:]
    assert node.stream((0,)).skip(99) == len(elements)
    lookup = node.lookup((0,))
    if lookup is not None:
        found = lookup(np.arange(len(elements))[::-1].copy()).elements()
        assert [np.asarray(x).tolist() for x in found] == elements[::-1]


def test_batches_of_a_part_of_the_size() -> None:
    node = Dataset.range(8).batch(4)._node
    assert isinstance(node, Batched)
    assert [x.tolist() for x in elements_of(node.divided(2).stream((0,)))] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_specs() -> None:
    assert Dataset.range(4).batch(2).element_spec == TensorSpec((None,), np.int64)
    assert Dataset.range(4).batch(2, drop_remainder=True).element_spec == TensorSpec((2,), np.int64)
    assert Dataset.range(4).batch(2).unbatch().element_spec == TensorSpec((), np.int64)
    with pytest.raises(InputError, match=r"given to map\(double\) is empty"):
        Dataset.range(0).map(double).element_spec  # noqa: B018


def test_what_functions_return() -> None:
    with pytest.raises(InputError, match="given to map returned None"):
        list(Dataset.range(1).map(lambda x: None))
    with pytest.raises(InputError, match="Return one boolean"):
        list(Dataset.range(1).filter(lambda x: np.ones(2, bool)))
    assert name_of(double) == "double"


def growing() -> Dataset:
    return Dataset.range(1, 5).map(lambda n: np.full(n, n))


@pytest.mark.parametrize(
    ("arguments", "expected", "shape"),
    [
        ({}, [[[1, 0, 0], [2, 2, 0], [3, 3, 3]], [[4, 4, 4, 4]]], (None, None)),
        (
            {"padded_shapes": [5]},
            [[[1, 0, 0, 0, 0], [2, 2, 0, 0, 0], [3, 3, 3, 0, 0]], [[4, 4, 4, 4, 0]]],
            (None, 5),
        ),
        (
            {"padded_shapes": [None], "padding_values": -1},
            [[[1, -1, -1], [2, 2, -1], [3, 3, 3]], [[4, 4, 4, 4]]],
            (None, None),
        ),
        ({"drop_remainder": True}, [[[1, 0, 0], [2, 2, 0], [3, 3, 3]]], (3, None)),
    ],
)
def test_batches_are_those_of_tf_data(arguments: dict[str, Any], expected: list[Any], shape: tuple[Any, ...]) -> None:
    dataset = growing().padded_batch(3, **arguments)
    assert [batch.tolist() for batch in dataset.as_numpy_iterator()] == expected
    assert len(dataset) == len(expected)
    assert dataset.element_spec == TensorSpec(shape, np.int64)
    assert [batch.tolist() for batch in dataset.skip(1).as_numpy_iterator()] == expected[1:]
    shares = [batch.data.tolist() for batch in dataset.batches(lambda rows: slice(rows // 2, rows))]
    assert shares == [batch[len(batch) // 2 :] for batch in expected]


def test_components_have_shapes_and_values_of_their_own() -> None:
    dataset = growing().map(lambda x: {"a": x, "n": len(x), "t": b"x" * len(x)})
    first, second = dataset.padded_batch(2).as_numpy_iterator()
    assert [first[name].tolist() for name in "ant"] == [[[1, 0], [2, 2]], [1, 2], [b"x", b"xx"]]
    assert second["a"].tolist() == [[3, 3, 3, 0], [4, 4, 4, 4]]
    shapes, values = {"a": (4,), "n": [], "t": ()}, {"a": 9, "n": 0, "t": b""}
    first, _ = dataset.padded_batch(2, shapes, values).as_numpy_iterator()
    assert first["a"].tolist() == [[1, 9, 9, 9], [2, 2, 9, 9]]
    pairs = growing().map(lambda x: (x, x[None])).padded_batch(2, ([None], [1, -1]))
    (x, y), _ = pairs.as_numpy_iterator()
    assert (x.shape, y.shape) == ((2, 2), (2, 1, 2))


def test_a_worker_reads_its_rows_where_the_shape_is_known() -> None:
    read: list[int] = []

    def noted(n: np.int64) -> np.ndarray:
        read.append(int(n))
        return np.full(n, n)

    def share(**arguments: Any) -> list[int]:
        read.clear()
        list(Dataset.range(1, 5).map(noted).padded_batch(4, **arguments).batches(lambda rows: slice(0, 2)))
        return sorted(read)

    assert share(padded_shapes=[6]) == [1, 2]
    assert share() == [1, 2, 3, 4]


def test_what_does_not_fit() -> None:
    with pytest.raises(
        InputError, match=r"Component element has an element of size \[3\], but padded_shapes says \[2\]"
    ):
        list(growing().padded_batch(3, padded_shapes=[2]))
    with pytest.raises(InputError, match=r"elements with 1 axes, padded to \[None, None\]"):
        list(growing().padded_batch(3, padded_shapes=[None, None]))
    with pytest.raises(InputError, match="elements with 0 and 1 axes"):
        list(Dataset.range(2).map(lambda n: np.zeros(3) if n else np.zeros(())).padded_batch(2))
    with pytest.raises(InputError, match=r"nested differently.*\n.*components \[0\], \[1\]"):
        list(growing().map(lambda x: (x, x)).padded_batch(3, padded_shapes=([3],)))
    with pytest.raises(InputError, match="batch_size is 0"):
        growing().padded_batch(0)
