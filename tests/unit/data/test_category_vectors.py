"""Vectors of categories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stratagem.data.category_vectors import category_vectors, vectors_shape


@pytest.mark.parametrize(
    ("numbers", "mode", "expected"),
    [
        ([1, 0], "one_hot", [[0, 1, 0], [1, 0, 0]]),
        ([[1], [2]], "one_hot", [[0, 1, 0], [0, 0, 1]]),
        ([[1, 2]], "one_hot", [[[0, 1, 0], [0, 0, 1]]]),
        (2, "one_hot", [0, 0, 1]),
        ([[1, 1, -1], [2, -1, -1]], "count", [[0, 2, 0], [0, 0, 1]]),
        ([[[1, 1], [0, 2]]], "count", [[[0, 2, 0], [1, 0, 1]]]),
        ([[1, 1, 0]], "multi_hot", [[1, 1, 0]]),
        (np.zeros((2, 0), int), "count", [[0, 0, 0], [0, 0, 0]]),
        ([1, 1], "multi_hot", [0, 1, 0]),
    ],
)
def test_vectors(numbers: Any, mode: str, expected: Any) -> None:
    array = np.array(numbers)
    vectors = category_vectors(array, 3, mode)
    assert (vectors.tolist(), vectors.dtype) == (expected, np.float32)
    assert vectors_shape(array.shape, 3, mode) == vectors.shape


def test_the_shape_of_unknown_sizes() -> None:
    assert vectors_shape((None, 1), 3, "one_hot") == (None, 3)
    assert vectors_shape((None, None), 3, "one_hot") == (None, None, 3)
    assert vectors_shape((None, None), 3, "count") == (None, 3)
