"""Functions along axes: `tf.reduce_mean`, `tf.argmax`, `tf.cumsum`, `tf.norm`, `tf.clip_by_global_norm`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf import derivatives
from stratagem.tf.tensors.marks import Array, Axes, Tensor
from stratagem.tf.tensors.operation import held, is_text, on_host, operation, tensor, tnp, xp


def _reduce(of: str, first: int | None) -> Callable[..., Any]:
    """Return `tf.reduce_...`; without elements it is infinite, with the sign of `first`, where NumPy and JAX refuse."""

    def function(input_tensor: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
        kind, options = input_tensor.dtype, {}
        if first is not None and not input_tensor.size:
            whole = np.issubdtype(kind, np.integer)
            options["initial"] = (np.iinfo(kind).max if first > 0 else np.iinfo(kind).min) if whole else first * np.inf
        found = getattr(xp(input_tensor), of)(input_tensor, axis=axis, keepdims=bool(keepdims), **options)
        return found.astype(kind)  # of int8 too, as TensorFlow

    text = f"""Return the {of} of a tensor's elements (`tf.math.reduce_{of}`).

    Args:
        input_tensor: The tensor.
        axis: An axis, or several; None for all.
        keepdims: Whether the axes stay, with size 1.
        name: No effect.
    """
    return operation(function, f"reduce_{of}", text)


reduce_max = _reduce("max", -1)
reduce_min = _reduce("min", 1)
reduce_prod = _reduce("prod", None)
reduce_sum = _reduce("sum", None)


def _of_truths(of: str) -> Callable[..., Any]:
    def function(input_tensor: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
        if input_tensor.dtype != np.bool_:
            raise InputError(
                f"reduce_{of} was given numbers, of dtype {input_tensor.dtype}.",
                "It is not defined which numbers count as true; TensorFlow takes only booleans.",
                "Write tf.cast(x, tf.bool), or a comparison.",
            )
        return getattr(xp(input_tensor), of)(input_tensor, axis=axis, keepdims=bool(keepdims))

    text = f"Return whether {of} of the elements are true (`tf.math.reduce_{of}`); with the arguments of `reduce_sum`."
    return operation(function, f"reduce_{of}", text)


reduce_all = _of_truths("all")
reduce_any = _of_truths("any")


@operation
def reduce_mean(input_tensor: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    """Return the mean of a tensor's elements (`tf.math.reduce_mean`); for integers it is an integer.

    Args:
        input_tensor: The tensor.
        axis: An axis, or several; None for all.
        keepdims: Whether the axes stay, with size 1.

    Example:
        >>> float(reduce_mean([1.0, 2.0, 6.0])), int(reduce_mean([1, 2]))
        (3.0, 1)
    """
    x = tensor(input_tensor)
    if xp(x) is np and not x.size:  # NumPy warns of it
        return np.full_like(np.sum(x, axis=axis, keepdims=bool(keepdims)), np.nan)
    return xp(x).mean(x, axis=axis, keepdims=bool(keepdims)).astype(x.dtype)


@operation
def reduce_variance(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the variance, divided by the number of elements (`tf.math.reduce_variance`).

    Raises:
        InputError: The tensor holds integers.
    """
    x = tensor(input_tensor)
    if np.issubdtype(x.dtype, np.integer):
        raise InputError(
            f"The variance of whole numbers was asked for, with dtype {x.dtype}.",
            "Their mean would be rounded; TensorFlow refuses it too.",
            "Write tf.cast(x, tf.float32).",
        )
    apart = x - reduce_mean(x, axis, True)
    squares = (xp(x).conj(apart) * apart).real if np.issubdtype(x.dtype, np.complexfloating) else xp(x).square(apart)
    return reduce_mean(squares, axis, keepdims)


@operation
def reduce_std(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the standard deviation (`tf.math.reduce_std`)."""
    variance = reduce_variance(input_tensor, axis, keepdims)
    return xp(variance).sqrt(variance)


@operation
def reduce_logsumexp(input_tensor: Array, axis: Axes = None, keepdims: bool = False) -> Any:
    """Return log(sum(exp(x))), without overflow (`tf.math.reduce_logsumexp`)."""
    most = jnp.max(derivatives.constant(input_tensor), axis=axis, keepdims=True, initial=-np.inf)
    most = jnp.where(jnp.isfinite(most), most, jnp.zeros_like(most))
    result = tnp.log(jnp.sum(jnp.exp(input_tensor - most), axis=axis, keepdims=True)) + most
    return result if keepdims else jnp.squeeze(result, axis)


@operation
def reduce_euclidean_norm(input_tensor: Tensor, axis: Axes = None, keepdims: bool = False) -> Any:
    """Return the square root of the sum of squares (`tf.math.reduce_euclidean_norm`)."""
    numpy = np if on_host(input_tensor) else jnp
    squares = numpy.sum(numpy.square(input_tensor), axis=axis, keepdims=bool(keepdims))
    return numpy.sqrt(squares).astype(input_tensor.dtype)


@operation
def count_nonzero(input: Tensor, axis: Axes = None, keepdims: bool = False, dtype: Any = "int64") -> Any:
    """Return how many elements are not 0, or not empty texts (`tf.math.count_nonzero`)."""
    nothing = b"" if is_text(input) else 0
    return xp(input).sum(input != nothing, axis=axis, keepdims=bool(keepdims)).astype(held(dtype))


@operation
def zero_fraction(value: Tensor) -> Any:
    """Return the fraction of the elements that are 0 (`tf.math.zero_fraction`)."""
    return xp(value).mean(value == 0).astype(np.float32) if value.size else xp(value).asarray(np.float32(np.nan))


def _place_of(x: Any, axis: Any, most: bool, kind: Any) -> Any:
    """Return the index of the greatest or the least element; NaN is ignored."""
    axis, numpy = 0 if axis is None else int(axis), xp(x)
    if not -x.ndim <= axis < max(x.ndim, 1) or not x.shape[axis]:
        raise InputError(
            f"The index of an element was asked for along axis {axis} of a tensor of shape {tuple(x.shape)}.",
            "There is no such axis, or it has no elements.",
            "Correct the axis.",
        )
    if np.issubdtype(x.dtype, np.floating) or x.dtype == jnp.bfloat16:
        x = numpy.where(numpy.isnan(x), numpy.asarray(-np.inf if most else np.inf, x.dtype), x)
    return (numpy.argmax if most else numpy.argmin)(x, axis=axis).astype(held(kind))


@operation
def argmax(input: Tensor, axis: Any = None, output_type: Any = "int64") -> Any:
    """Return the index of the greatest element along an axis, the first of equal ones (`tf.math.argmax`).

    Args:
        input: The tensor. NaN is ignored.
        axis: The axis; None for the first.
        output_type: The dtype of the result; JAX holds int64 as int32.

    Raises:
        InputError: There is no such axis, or it has no elements.

    Example:
        >>> argmax([[1, 9], [7, 2]], axis=1).tolist()
        [1, 0]
    """
    return _place_of(input, axis, True, output_type)


@operation
def argmin(input: Tensor, axis: Any = None, output_type: Any = "int64") -> Any:
    """Return the index of the least element along an axis, the first of equal ones (`tf.math.argmin`)."""
    return _place_of(input, axis, False, output_type)


def _cumulative(x: Any, axis: Any, exclusive: bool, reverse: bool, on_numpy: Callable[..., Any], neutral: float) -> Any:
    """Return cumulative values along an axis by NumPy, in functions of datasets."""
    axis = int(axis)
    x = np.flip(x, axis) if reverse else x
    if exclusive:
        first = np.full_like(np.take(x, np.array([0]), axis=axis), neutral)
        x = np.concatenate([first, np.take(x, np.arange(x.shape[axis] - 1), axis=axis)], axis)
    result = on_numpy(x, axis, dtype=x.dtype)
    return np.flip(result, axis) if reverse else result


def _axis_of(x: Any, axis: Any) -> int:
    axis = int(axis)
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"axis is {axis} for a tensor of shape {tuple(x.shape)}.", "Correct the axis.")
    return axis


@operation
def cumsum(x: Tensor, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return the sums up to each element (`tf.math.cumsum`).

    Args:
        x: The tensor.
        axis: The axis.
        exclusive: Whether to leave out the element itself.
        reverse: Whether to start at the end.

    Example:
        >>> cumsum([1, 2, 3]).tolist(), cumsum([1, 2, 3], exclusive=True, reverse=True).tolist()
        ([1, 3, 6], [5, 3, 0])
    """
    if on_host(x):
        return _cumulative(x, axis, exclusive, reverse, np.cumsum, 0)
    return derivatives.cumsum(x, _axis_of(x, axis), exclusive, reverse)


@operation
def cumprod(x: Tensor, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return the products up to each element (`tf.math.cumprod`); the arguments are those of `cumsum`."""
    if on_host(x):
        return _cumulative(x, axis, exclusive, reverse, np.cumprod, 1)
    return derivatives.cumprod(x, _axis_of(x, axis), exclusive, reverse)


@operation
def cumulative_logsumexp(x: Array, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return log(sum(exp)) up to each element (`tf.math.cumulative_logsumexp`)."""
    return derivatives.logcumsumexp(x, _axis_of(x, axis), exclusive, reverse)


@operation
def is_strictly_increasing(x: Tensor) -> Any:
    """Return whether each element is greater than the one before (`tf.math.is_strictly_increasing`)."""
    flat = x.reshape(-1)
    return xp(flat).all(flat[1:] > flat[:-1])


@operation
def is_non_decreasing(x: Tensor) -> Any:
    """Return whether no element is less than the one before (`tf.math.is_non_decreasing`)."""
    flat = x.reshape(-1)
    return xp(flat).all(flat[1:] >= flat[:-1])
