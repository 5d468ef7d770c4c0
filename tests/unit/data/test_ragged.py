"""Ragged and sparse tensors, and datasets of them, against what TensorFlow 2.21 gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset, TensorSpec
from stratagem.data.ragged import RaggedTensor
from stratagem.data.sparse import SparseTensor, from_dense, reorder
from stratagem.data.specs import RaggedTensorSpec, SparseTensorSpec
from stratagem.data.variable_length import to_dense


def three_rows() -> RaggedTensor:
    return RaggedTensor.from_row_lengths(np.array([1.0, 2.0, 3.0], np.float32), np.array([2, 0, 1]))


@pytest.mark.parametrize(
    "made",
    [
        RaggedTensor.from_row_splits([1, 2, 3], [0, 2, 2, 3]),
        RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1]),
        RaggedTensor.from_value_rowids([1, 2, 3], [0, 0, 2]),
        RaggedTensor.from_row_starts([1, 2, 3], [0, 2, 2]),
        RaggedTensor.from_row_limits([1, 2, 3], [2, 2, 3]),
        RaggedTensor.from_tensor([[1, 2, 0], [0, 0, 0], [3, 0, 0]], padding=0),
        RaggedTensor.from_tensor([[1, 2, 9], [9, 9, 9], [3, 9, 9]], lengths=[2, 0, 1]),
    ],
)
def test_ways_to_make_one(made: RaggedTensor) -> None:
    assert made.to_list() == [[1, 2], [], [3]]
    assert made.row_splits.tolist() == [0, 2, 2, 3]
    assert made.row_splits.dtype == np.int64
    assert (made.shape, made.dtype, made.ragged_rank) == ((3, None), np.int32, 1)


def test_parts() -> None:
    rows = three_rows()
    assert rows.values.numpy().tolist() == rows.flat_values.tolist() == [1, 2, 3]
    assert rows.row_lengths().tolist() == [2, 0, 1]
    assert rows.value_rowids().tolist() == [0, 0, 2]
    assert rows.bounding_shape().tolist() == [3, 2]
    assert int(rows.nrows()) == 3
    assert [row.tolist() for row in rows.numpy()] == [[1, 2], [], [3]]
    assert rows.to_tensor(shape=[None, 1]).tolist() == [[1], [0], [3]]
    assert rows.to_tensor(-1, shape=[4, 3]).tolist() == [[1, 2, -1], [-1, -1, -1], [3, -1, -1], [-1, -1, -1]]


def test_parts_of_rows() -> None:
    rows = three_rows()
    assert rows[0].tolist() == [1, 2]
    assert rows[-1].tolist() == [3]
    assert rows[1:].to_list() == [[], [3]]
    assert rows[:, :1].to_list() == [[1], [], [3]]
    assert (rows + 1).to_list() == [[2, 3], [], [4]]
    assert (10 * rows + rows).to_list() == [[11, 22], [], [33]]
    with pytest.raises(IndexError, match="has 3 rows"):
        rows[3]


def test_rows_of_rows() -> None:
    nested = RaggedTensor.from_nested_row_lengths([1, 2, 3, 4], [[2, 0, 1], [1, 2, 1]])
    assert nested.to_list() == [[[1], [2, 3]], [], [[4]]]
    assert nested.shape == (3, None, None)
    assert nested.to_tensor().tolist() == [[[1, 0], [2, 3]], [[0, 0], [0, 0]], [[4, 0], [0, 0]]]
    assert nested.bounding_shape().tolist() == [3, 2, 2]
    assert nested.take([2, 0]).to_list() == [[[4]], [[1], [2, 3]]]
    assert nested.row_lengths(2).to_list() == [[1, 2], [], [1]]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: RaggedTensor.from_row_splits([1, 2], [0, 3]), r"of 2 values was asked for with row_splits \[0, 3\]"),
        (lambda: RaggedTensor.from_row_splits([1, 2], [0, 2, 1, 2]), "never decrease"),
        (lambda: RaggedTensor.from_value_rowids([1, 2], [1, 0]), "Sort the values"),
        (lambda: np.asarray(three_rows()), "to_tensor"),
        (lambda: three_rows()[:, 0], "may be too short"),
        (lambda: three_rows() + RaggedTensor.from_row_lengths([1.0], [1]), "rows of different lengths"),
        (lambda: SparseTensor([[0, 0]], [1, 2], [3, 4]), "n values"),
        (lambda: to_dense(SparseTensor([[0, 5]], [1], [3, 4])), r"\(3, 4\) has a value at \[0, 5\]"),
        (lambda: np.asarray(from_dense([1, 0])), "tf.sparse.to_dense"),
    ],
)
def test_what_is_refused(refused: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        refused()


def test_sparse_tensors() -> None:
    sparse = SparseTensor(indices=[[1, 2], [0, 0]], values=[2, 1], dense_shape=[3, 4])
    dense = [[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    assert to_dense(sparse).tolist() == dense
    assert reorder(sparse).values.tolist() == [1, 2]
    assert from_dense(dense).indices.tolist() == [[0, 0], [1, 2]]
    assert to_dense(sparse[1:]).tolist() == dense[1:]
    assert [to_dense(row).tolist() for row in sparse] == dense
    assert to_dense(SparseTensor.joined([sparse, sparse])).tolist() == dense * 2


def test_ragged_ones_as_sparse_ones() -> None:
    nested = RaggedTensor.from_nested_row_lengths([1, 2, 3, 4], [[2, 0, 1], [1, 2, 1]])
    for rows in (three_rows(), nested):
        sparse = rows.to_sparse()
        np.testing.assert_array_equal(to_dense(sparse), rows.to_tensor())
        assert sparse.values.tolist() == rows.flat_values.tolist()
    assert RaggedTensor.from_sparse(three_rows().to_sparse()).to_list() == [[1, 2], [], [3]]
    with pytest.raises(InputError, match="that has gaps"):
        RaggedTensor.from_sparse(from_dense([[0, 1], [2, 0]]))


def of_three_kinds() -> Dataset:
    lengths = np.arange(10) % 4
    ragged = RaggedTensor.from_row_lengths(np.repeat(np.arange(10, dtype=np.float32), lengths), lengths)
    dense = ragged.to_tensor()
    return Dataset.from_tensor_slices({"dense": dense, "ragged": ragged, "sparse": from_dense(dense)})


def test_specs_of_elements_and_batches() -> None:
    dataset = of_three_kinds()
    assert dataset.element_spec == {
        "dense": TensorSpec((3,), np.float32),
        "ragged": RaggedTensorSpec((None,), np.float32, 0, np.int64),
        "sparse": SparseTensorSpec((3,), np.float32),
    }
    assert dataset.batch(4).element_spec == {
        "dense": TensorSpec((None, 3), np.float32),
        "ragged": RaggedTensorSpec((None, None), np.float32, 1, np.int64),
        "sparse": SparseTensorSpec((None, 3), np.float32),
    }


@pytest.mark.parametrize(
    "through",
    [
        lambda dataset: dataset.batch(4),
        lambda dataset: dataset.shuffle(10, seed=1).batch(3),
        lambda dataset: dataset.batch(4).unbatch().batch(3),
        lambda dataset: dataset.shard(2, 1).repeat(2).batch(4),
        lambda dataset: dataset.skip(1).concatenate(dataset.take(2)).batch(5),
        lambda dataset: dataset.cache().batch(4),
        lambda dataset: dataset.batch(4).map(lambda batch: batch),
        lambda dataset: Dataset.from_generator(lambda: iter(dataset.batch(4))),
    ],
)
def test_rows_stay_together_on_their_way(through: Callable[[Dataset], Dataset]) -> None:
    batches = list(through(of_three_kinds()))
    assert len(batches) > 1
    for batch in batches:
        width = batch["dense"].shape[1]
        np.testing.assert_array_equal(batch["ragged"].to_tensor(shape=[None, width]), batch["dense"])
        np.testing.assert_array_equal(to_dense(batch["sparse"]), batch["dense"])


def test_what_map_returns_is_dense() -> None:
    """TensorFlow refuses the batch too: a function's result is a tensor."""
    with pytest.raises(InputError, match="elements of shapes"):
        list(Dataset.from_tensor_slices(three_rows()).map(lambda row: row).batch(3))
