"""Functions of TensorFlow 1 whose arguments stood in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.data.ragged_making import eager
from stratagem.data.sparse import SparseTensor
from stratagem.data.variable_length import to_dense
from stratagem.tf.tensors import arranging, counting


def batch_to_space(
    input: Any, crops: Any, block_size: Any = None, name: str | None = None, block_shape: Any = None
) -> Any:
    """Return blocks of a batch put together (`tf.compat.v1.batch_to_space`); `tf.batch_to_space` says more."""
    shape = [block_size, block_size] if block_shape is None else block_shape
    return arranging.batch_to_space(input, shape, crops)


def space_to_batch(
    input: Any, paddings: Any, block_size: Any = None, name: str | None = None, block_shape: Any = None
) -> Any:
    """Return the blocks of a tensor as a batch (`tf.compat.v1.space_to_batch`); `tf.space_to_batch` says more."""
    shape = [block_size, block_size] if block_shape is None else block_shape
    return arranging.space_to_batch(input, shape, paddings)


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
    weights: Any = None,
) -> Any:
    """Return how often each class was predicted for each class (`tf.compat.v1.confusion_matrix`)."""
    return counting.confusion_matrix(labels, predictions, num_classes, weights, dtype)


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Any:
    """Return a tensor with values at some places (`tf.compat.v1.sparse_to_dense`); `tf.sparse.to_dense` says more.

    Args:
        sparse_indices: One place; a vector of places; or a matrix of places with a column for each axis.
        output_shape: The shape of the tensor.
        sparse_values: The values, or one for all places.
        default_value: The value of all other places.
        validate_indices: Whether a place that occurs twice is an error.
        name: Accepted as in TensorFlow.

    Example:
        >>> sparse_to_dense([0, 2], [3], 1).tolist()
        [1, 0, 1]
    """
    sizes, indices, values = np.atleast_1d(np.asarray(output_shape)), eager(sparse_indices), eager(sparse_values)
    indices = indices.reshape(-1, len(sizes))
    if not values.ndim:
        values = values[None].repeat(len(indices), axis=0)
    return to_dense(SparseTensor(indices, values, sizes), default_value, validate_indices)
