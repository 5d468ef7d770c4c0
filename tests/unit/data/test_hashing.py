"""`Hashing` and `HashedCrossing`, held against Keras 3.15's layers with TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.data import Dataset, HashedCrossing, Hashing
from stratagem.data.ragged import RaggedTensor

WORDS = [["A"], ["B"], [""], ["C"], ["D"]]
ROWS = [["A", "B", "A"], ["C", "D", "E"]]


@pytest.mark.parametrize(
    ("arguments", "inputs", "expected"),
    [
        ({"num_bins": 7}, WORDS, [[3], [6], [6], [1], [4]]),
        ({"num_bins": 3, "mask_value": ""}, WORDS, [[1], [1], [0], [2], [2]]),
        ({"num_bins": 9, "mask_value": "", "salt": [133, 137]}, WORDS, [[1], [7], [0], [8], [3]]),
        ({"num_bins": 3, "salt": 133}, ["A", "B", "C", "D", "E"], [0, 0, 2, 1, 0]),
        ({"num_bins": 9}, [[1, -2, 30], [4, 5, 6]], [[0, 1, 8], [2, 1, 2]]),
        ({"num_bins": 9}, [1.7, -2.2, 30.0], [0, 1, 8]),
        ({"num_bins": 9, "mask_value": -1}, [[1, -1, 30]], [[2, 0, 3]]),
        ({"num_bins": 1, "mask_value": ""}, ["", "a"], [0, 0]),
        ({"num_bins": 7}, "A", 3),
        ({"num_bins": 4, "output_mode": "one_hot"}, ["A", "C"], [[1, 0, 0, 0], [0, 0, 0, 1]]),
        ({"num_bins": 4, "output_mode": "one_hot"}, [["A", "B"]], [[[1, 0, 0, 0], [1, 0, 0, 0]]]),
        ({"num_bins": 4, "output_mode": "multi_hot"}, ROWS, [[1, 0, 0, 0], [1, 0, 0, 1]]),
        ({"num_bins": 4, "output_mode": "count"}, ROWS, [[3, 0, 0, 0], [1, 0, 0, 2]]),
    ],
)
def test_values_have_the_bins_of_keras(arguments: dict[str, Any], inputs: Any, expected: Any) -> None:
    hashing = Hashing(**arguments)
    bins = hashing(np.array(inputs))
    assert bins.tolist() == expected
    assert bins.dtype == ("int64" if hashing.output_mode == "int" else "float32")
    assert hashing.output_spec(np.shape(inputs)) == (bins.shape, str(bins.dtype))
    assert Hashing(**hashing.get_config())(inputs).tolist() == expected


@pytest.mark.parametrize(
    ("inputs", "bins", "expected"),
    [
        (([["red"], ["green"], ["blue"]], [[1], [2], [3]]), 5, [[4], [2], [4]]),
        ((["red", "green"], [1, 2]), 5, [4, 2]),
        (("red", 1), 5, 4),
        ((["red", "green"], [1, 2], ["x", "y"]), 50, [27, 43]),
        (([["A"]], [["x"]]), 1000, [[210]]),
        (([[1]], [[2]]), 1000, [[357]]),
        (([[-1]], [["é"]], [[7]]), 1000, [[733]]),
    ],
)
def test_combinations_have_the_bins_of_keras(inputs: Any, bins: int, expected: Any) -> None:
    crossing = HashedCrossing(bins)
    found = crossing(inputs)
    assert found.tolist() == expected
    assert HashedCrossing(**crossing.get_config())([np.array(each) for each in inputs]).tolist() == expected


def test_vectors_of_combinations() -> None:
    vectors = HashedCrossing(5, output_mode="one_hot")(([["red"], ["green"]], [[1], [2]]))
    assert vectors.tolist() == [[0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]


def test_ragged_words() -> None:
    bins = Hashing(7)(RaggedTensor.from_row_lengths(np.array([b"A", b"B", b"C"], object), [1, 2]))
    assert bins.to_list() == [[3], [6, 1]]


def test_in_a_dataset() -> None:
    crossing, hashing = HashedCrossing(5), Hashing(7, dtype="int32")
    dataset = Dataset.from_tensor_slices((np.array(["red", "green"]), np.array([1, 2])))
    dataset = dataset.map(lambda color, size: (hashing(color), crossing((color, size)))).batch(2)
    (bins, crossed) = next(iter(dataset))
    assert np.asarray(bins).dtype == np.int32
    assert np.asarray(crossed).tolist() == [4, 2]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Hashing(0), "Hashing was given num_bins=0"),
        (lambda: Hashing(3, salt=[1, 2, 3]), r"was given salt=\[1, 2, 3\]"),
        (lambda: Hashing(3, output_mode="tf_idf"), "output_mode='tf_idf'.(.|\n)*int, one_hot, multi_hot, count"),  # type: ignore[arg-type]
        (lambda: Hashing(3, sparse=True, output_mode="count"), "was given sparse=True"),
        (lambda: Hashing(3, dtype="float32"), "dtype='float32' and output_mode=\"int\""),
        (lambda: HashedCrossing(3, output_mode="count"), "output_mode='count'"),  # type: ignore[arg-type]
        (lambda: HashedCrossing(3)(([1, 2],)), "was called with a tuple of 1"),
        (lambda: HashedCrossing(3)(np.ones(3)), r"was called with a ndarray\.(.|\n)*two or more arrays"),  # type: ignore[arg-type]
        (lambda: HashedCrossing(3)(([1, 2], [1, 2, 3])), r"arrays of shapes \(2,\), \(3,\)"),
        (lambda: HashedCrossing(3)((np.ones((2, 2), int), np.ones((2, 2), int))), r"shapes \(2, 2\), \(2, 2\)"),
        (lambda: HashedCrossing(3)(([1.5], [1])), "was called with float64"),
    ],
)
def test_wrong_uses(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


def test_in_a_compiled_function() -> None:
    import jax

    with pytest.raises(UsageError, match="Hashing was called inside a model or a compiled function"):
        jax.jit(lambda x: Hashing(3)(x))(np.array([1, 2]))
