"""Functions, filters, batches and their rows: passes, positions and specs."""

from __future__ import annotations

from collections.abc import Callable

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
    with pytest.raises(InputError, match=r"empty before map\(double\)"):
        Dataset.range(0).map(double).element_spec  # noqa: B018


def test_what_functions_return() -> None:
    with pytest.raises(InputError, match="given to map returned None"):
        list(Dataset.range(1).map(lambda x: None))
    with pytest.raises(InputError, match="Return one boolean"):
        list(Dataset.range(1).filter(lambda x: np.ones(2, bool)))
    assert name_of(double) == "double"
