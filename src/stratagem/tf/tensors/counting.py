"""Counts of numbers, and sums of the rows that have one number: `tf.math.bincount`, `tf.math.segment_sum`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.program.tracing import is_traced
from stratagem.tf import derivatives
from stratagem.tf.tensors.indexing import known
from stratagem.tf.tensors.marks import Array, Tensor
from stratagem.tf.tensors.operation import held, operation, refusal, refuse_outside, tensor


@operation
def bincount(
    arr: Any,
    weights: Tensor | None = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = "int32",
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> Any:
    """Return how often each whole number from 0 occurs (`tf.math.bincount`).

    In a compiled function the length must be known: give `minlength` and `maxlength` the same number.

    Args:
        arr: Whole numbers.
        weights: The weight of each number; None for 1.
        minlength: The least length of the result.
        maxlength: The greatest length of the result. This number and greater ones do not count.
        dtype: The dtype of the result. With weights it is that of the weights.
        name: No effect.
        axis: None or 0 to count all numbers together; -1 to count each row separately.
        binary_output: Whether to return 1 for numbers that occur and 0 for others, instead of counts.

    Raises:
        InputError: A number is negative.

    Example:
        >>> bincount([1, 2, 2]).tolist(), bincount([[1, 2, 2], [0, 0, 1]], axis=-1).tolist()
        ([0, 1, 2], [[0, 1, 2], [2, 1, 0]])
    """
    rows = tensor(arr).reshape(-1) if axis != -1 else tensor(arr)
    rows = rows.reshape(-1, rows.shape[-1]) if rows.ndim > 1 else rows.reshape(1, -1)
    counted = None if weights is None else weights.reshape(rows.shape)
    if maxlength is not None and minlength == maxlength:
        length = int(maxlength)
    else:
        refuse_outside(rows, np.iinfo(np.int32).max, "The numbers to be counted", "whole numbers from 0")
        most = int(np.max(np.asarray(rows), initial=-1)) + 1
        length = max(most, 0 if minlength is None else int(minlength))
        length = length if maxlength is None else min(length, int(maxlength))
    kind = weights.dtype if weights is not None else held(dtype)
    one = jnp.ones(rows.shape, kind) if counted is None or binary_output else jnp.asarray(counted)
    places = jnp.where((rows >= 0) & (rows < length), rows, length)
    start = jnp.zeros((rows.shape[0], length), kind)
    at = start.at[jnp.arange(rows.shape[0])[:, None], places]
    found = at.max(one, mode="drop") if binary_output else at.add(one, mode="drop")
    return found if axis == -1 and np.ndim(arr) > 1 else found[0]


@operation
def confusion_matrix(
    labels: Array, predictions: Array, num_classes: Any = None, weights: Array | None = None, dtype: Any = "int32"
) -> Any:
    """Return how often each class (row) was predicted as each class (column) (`tf.math.confusion_matrix`).

    Args:
        labels: The true classes, whole numbers.
        predictions: The predicted classes.
        num_classes: The number of classes; it is needed in a compiled function.
        weights: A weight for each prediction.
        dtype: The dtype of the counts.

    Raises:
        InputError: There is no such class.

    Example:
        >>> confusion_matrix([1, 2, 2], [1, 1, 2], num_classes=3).tolist()
        [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    rows, columns = labels.reshape(-1), predictions.reshape(-1)
    count = int(max(rows.max(), columns.max())) + 1 if num_classes is None else int(num_classes)
    for numbers, what in ((rows, "labels"), (columns, "predictions")):
        refuse_outside(numbers, count, f"The {what}", "classes")
    one = jnp.ones(rows.shape) if weights is None else weights.reshape(-1)
    return jnp.zeros((count, count)).at[rows, columns].add(one).astype(held(dtype))


@operation
def segment(data: Array, segment_ids: Array, kind: str, num_segments: Any, ascending: bool = False) -> Any:
    """Return the "sum", "prod", "max", "min", "mean" or "sqrt_n" of each segment's rows; negative ids have no segment.

    Raises:
        InputError: A number is too great, or the numbers of ids and rows differ.
    """
    if data.shape[: segment_ids.ndim] != segment_ids.shape:
        raise InputError(
            f"Segments of shape {segment_ids.shape} were given for data of shape {data.shape}.",
            "Give one segment number for each row.",
        )
    count = int(num_segments)
    refuse_outside(segment_ids, count, "segment_ids", "segments", negative=True)
    rows, segment_ids = data.reshape(-1, *data.shape[segment_ids.ndim :]), segment_ids.reshape(-1)
    return derivatives.segments(kind, count, ascending=ascending)(rows, jnp.where(segment_ids < 0, count, segment_ids))


def _sorted_segments(kind: str) -> Callable[..., Any]:
    def function(data: Any, segment_ids: Tensor) -> Any:
        of_any_order = f"tf.math.unsorted_segment_{kind} with num_segments."
        numbers = known(segment_ids, f"math.segment_{kind}", f"Write {of_any_order}")
        if numbers.size and (np.any(numbers[1:] < numbers[:-1]) or numbers[0] < 0):
            raise InputError(
                f"segment_{kind} was given segment_ids that do not ascend from 0: {numbers.tolist()}.",
                f"Sort them, or write {of_any_order}",
            )
        count = int(numbers[-1]) + 1 if numbers.size else 0
        found = segment(data, segment_ids, kind, count, True)
        if kind not in ("max", "min"):
            return found
        present = np.isin(np.arange(count), numbers).reshape(-1, *(1,) * (found.ndim - 1))
        return jnp.where(present, found, jnp.zeros_like(found))

    text = f"Return the {kind} of the rows with each number, which ascend (`tf.math.segment_{kind}`)."
    return operation(function, f"segment_{kind}", text)


def _segments(kind: str) -> Callable[..., Any]:
    def function(data: Any, segment_ids: Any, num_segments: Any) -> Any:
        return segment(data, segment_ids, kind, num_segments)

    text = f"Return the {kind} of the rows with each number (`tf.math.unsorted_segment_{kind}`)."
    return operation(function, f"unsorted_segment_{kind}", text)


segment_max = _sorted_segments("max")
segment_mean = _sorted_segments("mean")
segment_min = _sorted_segments("min")
segment_prod = _sorted_segments("prod")
segment_sum = _sorted_segments("sum")
unsorted_segment_max = _segments("max")
unsorted_segment_mean = _segments("mean")
unsorted_segment_min = _segments("min")
unsorted_segment_prod = _segments("prod")
unsorted_segment_sqrt_n = _segments("sqrt_n")
unsorted_segment_sum = _segments("sum")


@operation
def histogram_fixed_width_bins(values: Array, value_range: Tensor, nbins: int = 100, dtype: Any = "int32") -> Any:
    """Return the part of a range in which each number lies; the first or the last for numbers outside.

    (`tf.histogram_fixed_width_bins`)
    """
    low, high = (jnp.asarray(each, values.dtype) for each in value_range)
    part = jnp.floor(nbins * ((values - low) / (high - low)))
    return jnp.clip(part, 0, nbins - 1).astype(held(dtype))


@operation
def histogram_fixed_width(values: Tensor, value_range: Tensor, nbins: int = 100, dtype: Any = "int32") -> Any:
    """Return how many numbers lie in each of several equal parts of a range (`tf.histogram_fixed_width`).

    Example:
        >>> histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], nbins=5).tolist()
        [2, 1, 1, 0, 2]

    Raises:
        InputError: The range is empty or reversed, or a number is NaN.
    """
    low, high = value_range
    if not (is_traced(low) or is_traced(high)) and not low < high:
        raise refusal(f"value_range is [{low}, {high}].", "Give the lower bound first.")
    if not is_traced(values) and np.issubdtype(values.dtype, np.floating) and np.isnan(values).any():
        raise refusal("A histogram was given NaN.", "Remove NaN from the numbers first.")
    return bincount(histogram_fixed_width_bins(values, value_range, nbins), None, nbins, nbins, dtype)
