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

    Keras 3's makes a `tf.data` dataset, on every backend. Memory holds only the positions of the windows.
    Source of the semantics: https://keras.io/api/data_loading/timeseries/

    Args:
        data: An array of consecutive points, along the first axis.
        targets: One for each window, the one at its first point; None for windows alone.
        sequence_length: How many points a window has.
        sequence_stride: How far the next window begins behind one.
        sampling_rate: How far the next point of a window lies behind one.
        batch_size: How many windows are a batch; None for single ones.
        shuffle: Whether in random order.
        seed: Of that order.
        start_index: The first point to be used.
        end_index: The first point no longer to be used.

    Raises:
        InputError: No window fits, or a number makes no sense.

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
            f"Windows of {sequence_length} points, each {sampling_rate} behind the one before, were asked for, "
            f"{sequence_stride} apart; from point {first} to {end} of {len(series)}.",
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
