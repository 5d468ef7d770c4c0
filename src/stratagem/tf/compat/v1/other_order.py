"""Functions of TensorFlow 1 whose arguments stood in another order."""

from __future__ import annotations

from typing import Any

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
    """Return how often each class was taken for each (`tf.compat.v1.confusion_matrix`)."""
    return counting.confusion_matrix(labels, predictions, num_classes, weights, dtype)
