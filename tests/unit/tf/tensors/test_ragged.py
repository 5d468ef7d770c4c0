"""Operations on ragged tensors, against what TensorFlow 2.21 gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError


@pytest.mark.parametrize(
    ("lists", "shape", "splits"),
    [
        ([[1, 2], [], [3]], (3, None), [[0, 2, 2, 3]]),
        ([[[1], [2, 3]], [], [[4]]], (3, None, None), [[0, 2, 2, 3], [0, 1, 3, 4]]),
        ([[], []], (2, None), [[0, 0, 0]]),
        ([[[]], []], (2, None, None), [[0, 1, 1], [0, 0]]),
        ([["a"], ["b", "c"]], (2, None), [[0, 1, 3]]),
    ],
)
def test_constant(lists: list[Any], shape: tuple[int | None, ...], splits: list[list[int]]) -> None:
    made = tf.ragged.constant(lists)
    assert made.shape == shape
    assert [each.tolist() for each in made.nested_row_splits] == splits


def test_constant_of_whole_rows() -> None:
    made = tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], dtype=tf.float32, ragged_rank=1)
    assert made.shape == (2, None, 2)
    assert made.dtype == np.float32


def rows() -> Any:
    return tf.ragged.constant([[1.0, 2.0], [], [3.0]])


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda: tf.reduce_sum(rows()), 6),
        (lambda: tf.reduce_sum(rows(), axis=1), [3, 0, 3]),
        (lambda: tf.reduce_sum(rows(), axis=0), [4, 2]),
        (lambda: tf.reduce_mean(rows(), axis=1), [1.5, np.nan, 3]),
        (lambda: tf.reduce_max(rows(), axis=1), [2, np.finfo(np.float32).min, 3]),
        (lambda: tf.reduce_any(rows() > 1.5, axis=1), [True, False, True]),
        (lambda: tf.reduce_all(rows() > 1.5, axis=1), [False, True, True]),
    ],
)
def test_reductions(operation: Callable[[], Any], expected: Any) -> None:
    np.testing.assert_array_equal(operation(), np.asarray(expected, np.asarray(operation()).dtype))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda: tf.square(rows()), [[1, 4], [], [9]]),
        (lambda: tf.add(rows(), rows()), [[2, 4], [], [6]]),
        (lambda: tf.cast(rows(), tf.int32), [[1, 2], [], [3]]),
        (lambda: tf.concat([rows(), rows()], axis=0), [[1, 2], [], [3], [1, 2], [], [3]]),
        (lambda: tf.concat([rows(), rows()], axis=1), [[1, 2, 1, 2], [], [3, 3]]),
        (lambda: tf.gather(rows(), [2, 0]), [[3], [1, 2]]),
        (lambda: tf.gather([0, 10, 20, 30], tf.cast(rows(), tf.int32)), [[10, 20], [], [30]]),
        (lambda: tf.ragged.map_flat_values(lambda x: x * 10, rows()), [[10, 20], [], [30]]),
        (lambda: tf.reduce_sum(tf.ragged.constant([[[1, 2], [3]], [[4]]]), axis=2), [[3, 3], [4]]),
        (lambda: tf.ragged.stack([[1, 2], [3]]), [[1, 2], [3]]),
        (lambda: tf.ragged.range([2, 0, 3]), [[0, 1], [], [0, 1, 2]]),
    ],
)
def test_results_with_rows(operation: Callable[[], Any], expected: list[Any]) -> None:
    assert operation().to_list() == expected


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: tf.matmul(rows(), rows()), r"matmul was given a ragged tensor of shape \(3, None\)"),
        (lambda: tf.reduce_sum(rows(), axis=[0, 1]), "along one axis"),
        (lambda: tf.ragged.constant([[1], 2]), "nested equally deep"),
        (lambda: tf.ragged.map_flat_values(lambda x: x[:1], rows()), "one result for each value"),
        (lambda: tf.add(rows(), tf.ragged.constant([[1.0]])), "rows of different lengths"),
    ],
)
def test_what_is_refused(refused: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        refused()
