"""Iterators as functions (`tf.compat.v1.data.make_one_shot_iterator`, ...)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from stratagem.data.dataset import Dataset
from stratagem.data.files.tfrecord import TFRecordDataset
from stratagem.data.one_shot import OneShotIterator


def make_one_shot_iterator(dataset: Dataset) -> OneShotIterator:
    """Return an iterator whose `get_next()` an `input_fn` may return (`tf.compat.v1.data.make_one_shot_iterator`).

    Example:
        >>> int(next(make_one_shot_iterator(Dataset.range(3))))
        0
    """
    return dataset.make_one_shot_iterator()


def get_output_shapes(dataset_or_iterator: Any) -> Any:
    """Return the shapes of an element.

    Example:
        >>> get_output_shapes(Dataset.range(3).batch(2))
        (None,)
    """
    return jax.tree.map(lambda spec: spec.shape, dataset_or_iterator.element_spec)


def get_output_types(dataset_or_iterator: Any) -> Any:
    """Return the dtypes of an element.

    Example:
        >>> get_output_types(Dataset.range(3))
        dtype('int64')
    """
    return jax.tree.map(lambda spec: spec.dtype, dataset_or_iterator.element_spec)


def get_output_classes(dataset_or_iterator: Any) -> Any:
    """Return the classes of the parts of an element: arrays.

    Example:
        >>> get_output_classes(Dataset.range(3))
        <class 'numpy.ndarray'>
    """
    return jax.tree.map(lambda spec: np.ndarray, dataset_or_iterator.element_spec)


def tf_record_iterator(path: Any, options: Any = None) -> Iterator[bytes]:
    """Return an iterator over the records of a file (`tf.compat.v1.python_io.tf_record_iterator`)."""
    return iter(TFRecordDataset(path, getattr(options, "compression_type", options)).as_numpy_iterator())
