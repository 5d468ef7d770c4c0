"""Vectors of categories: what lookups and hashes return for `output_mode="one_hot"`, "multi_hot" and "count"."""

from __future__ import annotations

import math

import numpy as np


def category_vectors(numbers: np.ndarray, width: int, output_mode: str) -> np.ndarray:
    """Return vectors for the numbers of categories.

    Args:
        numbers: Whole numbers below `width`, of any shape; -1 stands for nothing.
        width: Entries of a vector.
        output_mode: "one_hot" gives a vector for each number; a last axis of one number is left out. Others give one
            vector for the numbers of the last axis: "multi_hot" with 1 where a number is, "count" with how often.

    Returns:
        float32, of the shape of `numbers` without or with its last axis, and `width`.

    Example:
        >>> category_vectors(np.array([[1, 1, 2]]), 4, "count").tolist()
        [[0.0, 2.0, 1.0, 0.0]]
    """
    if output_mode == "one_hot":
        numbers = numbers[..., 0] if numbers.ndim > 1 and numbers.shape[-1] == 1 else numbers
        return (numbers[..., np.newaxis] == np.arange(width)).astype(np.float32)
    rows = rows_of_last_axis(np.atleast_1d(numbers))
    counts = np.zeros((len(rows), width), np.float32)
    np.add.at(counts, (np.nonzero(rows >= 0)[0], rows[rows >= 0]), 1)
    if output_mode == "multi_hot":
        counts = (counts > 0).astype(np.float32)
    return counts.reshape(*numbers.shape[:-1], width)


def vectors_shape(shape: tuple[int | None, ...], width: int, output_mode: str) -> tuple[int | None, ...]:
    """Return the shape of `category_vectors`.

    Args:
        shape: That of the numbers; None where a size is not known.
        width: Entries of a vector.
        output_mode: As above.
    """
    if output_mode == "one_hot":
        return (*(shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape), width)
    return (*shape[:-1], width)


def rows_of_last_axis(array: np.ndarray) -> np.ndarray:
    """Return an array as rows of its last axis, with two axes.

    Args:
        array: An array with one axis or more.
    """
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])  # -1 would not do where a row is empty
