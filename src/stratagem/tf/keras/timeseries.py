"""Windows of a series as a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import Dataset


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
) -> Dataset:
    """Return a dataset of windows of a series (`tf.keras.utils.timeseries_dataset_from_array`).

    Keras 3's own function makes a `tf.data` dataset on every backend. Memory holds only the positions of the windows.
    Source of the semantics: https://keras.io/api/data_loading/timeseries/

    Args:
        data: An array of consecutive points, along the first axis.
        targets: One target for each window, at the position of its first point; None for windows without targets.
        sequence_length: The number of points of a window.
        sequence_stride: The distance between the beginnings of two windows.
        sampling_rate: The distance between two points of a window.
        batch_size: The number of windows in a batch; None for single windows.
        shuffle: Whether the windows are in random order.
        seed: The seed of that order.
        start_index: The first point that is used.
        end_index: The first point that is no longer used.

    Raises:
        InputError: No window fits, or a number is not valid.

    Example:
        >>> dataset = timeseries_dataset_from_array(np.arange(6), np.arange(6) * 10, sequence_length=3, batch_size=2)
        >>> [(x.tolist(), y.tolist()) for x, y in dataset.as_numpy_iterator()]
        [([[0, 1, 2], [1, 2, 3]], [0, 10]), ([[2, 3, 4], [3, 4, 5]], [20, 30])]
    """
    series = np.asarray(data)
    first, end = start_index or 0, len(series) if end_index is None else end_index
    span = (sequence_length - 1) * sampling_rate + 1
    last = end - span  # where the last window may begin
    if targets is not None:
        last = min(last, len(targets) - 1)
    if min(sequence_length, sequence_stride, sampling_rate) < 1 or not 0 <= first <= end <= len(series) or last < first:
        raise InputError(
            f"Windows with sequence_length={sequence_length}, sampling_rate={sampling_rate} and "
            f"sequence_stride={sequence_stride} were asked for, from point {first} to {end} of {len(series)}.",
            "Give positive numbers, and a window no longer than the series.",
        )
    starts = np.arange(first, last + 1, sequence_stride)
    offsets = np.arange(sequence_length) * sampling_rate
    values = None if targets is None else np.asarray(targets)

    def window(start: Any) -> Any:
        points = series[np.asarray(start)[..., np.newaxis] + offsets]
        return points if values is None else (points, values[np.asarray(start)])

    dataset = Dataset.from_tensor_slices(starts)
    if shuffle:
        dataset = dataset.shuffle(len(starts), seed=seed)
    return dataset.map(window) if batch_size is None else dataset.batch(batch_size).map(window)
