"""Nested structures: what TensorFlow 2.21 returns and refuses."""

from __future__ import annotations

from typing import Any

import pytest

import stratagem.tf as tf


@pytest.fixture
def ragged() -> Any:
    return tf.ragged.constant([[1, 2], [3]])


def test_leaves_of_ragged_and_sparse_tensors(ragged: Any) -> None:
    leaves = tf.nest.flatten([ragged, None], expand_composites=True)
    assert [None if leaf is None else leaf.tolist() for leaf in leaves] == [[1, 2, 3], [0, 2, 3], None]
    sparse = tf.nest.flatten(tf.sparse.from_dense([0, 1]), expand_composites=True)
    assert [leaf.tolist() for leaf in sparse] == [[[1]], [1], [2]]
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    assert [leaf.tolist() for leaf in tf.nest.flatten(slices, expand_composites=True)] == [[1.0], [0]]
    assert tf.nest.flatten(ragged) == [ragged]


def test_mapped_and_packed(ragged: Any) -> None:
    doubled, number = tf.nest.map_structure(lambda x: x * 2, [ragged.with_values(tf.ones(3)), 1])
    assert (doubled.to_list(), number) == ([[2.0, 2.0], [2.0]], 2)
    packed = tf.nest.pack_sequence_as([ragged, 1], [tf.constant([7, 8, 9]), ragged.row_splits, 5], True)
    assert (packed[0].to_list(), packed[1]) == ([[7, 8], [9]], 5)
    for leaves in ([ragged.values], [ragged.values, ragged.row_splits, 5, 6]):
        with pytest.raises(ValueError, match=r"leaves|sequence"):
            tf.nest.pack_sequence_as([ragged, 1], leaves, expand_composites=True)
    seen: list[list[int]] = []
    tf.nest.map_structure(lambda part: seen.append(part.tolist()), ragged, expand_composites=True)
    assert seen == [[1, 2, 3], [0, 2, 3]]


def test_types_are_checked_unless_one_says_so() -> None:
    assert tf.nest.map_structure(lambda a, b: a + b, [1], (2,), check_types=False) == [3]
    assert tf.nest.assert_same_structure([1], (1,), check_types=False) is None
    with pytest.raises(TypeError, match="don't have the same nested structure") as caught:
        tf.nest.map_structure(lambda a, b: a + b, [1], (2,))
    assert "check_types=False" in str(caught.value)
    with pytest.raises(ValueError, match="don't have the same nested structure"):
        tf.nest.map_structure(lambda a, b: a + b, [1], [2, 3], check_types=False)


def test_arrays_of_composites_are_counted(ragged: Any) -> None:
    assert tf.nest.assert_same_structure(ragged, ragged, expand_composites=True) is None
    with pytest.raises(ValueError, match=r"\[2\] and \[1\] arrays"):
        tf.nest.assert_same_structure(ragged, 1, expand_composites=True)
