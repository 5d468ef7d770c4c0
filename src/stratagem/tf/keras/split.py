"""Halves of a dataset."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.data import Dataset
from stratagem.data.structure import stack


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Any, Any]:
    """Return the first and the last elements of a dataset as two datasets (`tf.keras.utils.split_dataset`).

    All elements are read now, and kept in memory. Batches are taken apart, and joined again in the same size.
    Source of the semantics: https://keras.io/api/utils/python_utils/#split_dataset-function

    Args:
        dataset: A dataset, an array, or a list or tuple of arrays. A dataset of torch goes to Keras's own function.
        left_size: The number of elements of the first half, or their fraction; None for the rest.
        right_size: The same for the second half.
        shuffle: Whether to shuffle first; a seed gives the same order as in Keras.
        seed: The seed of that order.
        preferred_backend: "torch" for Keras's own function.

    Raises:
        InputError: The sizes do not fit the dataset.

    Example:
        >>> left, right = split_dataset(Dataset.range(10), left_size=0.8)
        >>> left.cardinality(), [int(x) for x in right]
        (8, [8, 9])
    """
    if preferred_backend == "torch" or (
        not isinstance(dataset, Dataset | list | tuple) and not hasattr(dataset, "shape")
    ):
        return keras.utils.split_dataset(dataset, left_size, right_size, shuffle, seed, preferred_backend)
    if not isinstance(dataset, Dataset):
        dataset = Dataset.from_tensor_slices(tuple(dataset) if isinstance(dataset, list | tuple) else dataset)
    batch_size = dataset.batch_size
    elements = list((dataset.unbatch() if batch_size else dataset).as_numpy_iterator())
    if shuffle:
        random.Random(random.randint(0, 10**6) if seed is None else seed).shuffle(elements)
    left, right = _sizes(left_size, right_size, len(elements))
    halves = [Dataset.from_tensor_slices(stack(half)) for half in (elements[:left], elements[len(elements) - right :])]
    first, second = [half.batch(batch_size) if batch_size else half for half in halves]
    return first, second


def _sizes(left_size: float | None, right_size: float | None, length: int) -> Sequence[int]:
    """Return the numbers of elements, of `length`, that two sizes mean."""
    given = [
        None if size is None else size if isinstance(size, int) else round(size * length)
        for size in (left_size, right_size)
    ]
    left, right = [
        length - (other or 0) if size is None else size for size, other in zip(given, given[::-1], strict=True)
    ]
    if given == [None, None] or min(left, right) < 1 or left + right > length:
        raise InputError(
            f"left_size is {left_size!r}, right_size is {right_size!r}, for a dataset with {length} elements.",
            "Write one of them: a smaller number of elements, or a fraction between 0 and 1. No half may be empty.",
        )
    return left, right
