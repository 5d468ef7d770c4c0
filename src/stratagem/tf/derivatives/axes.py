"""Functions along axes and of rows, with TensorFlow's derivatives.

Source of the rules: tensorflow/python/ops/math_grad.py, nn_grad.py and data_flow_grad.py of TensorFlow 2.21.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.tf.derivatives import numbers
from stratagem.tf.derivatives.rules import Function, ruled, where


def _cumulative(along: Function, x: Any, axis: int, exclusive: bool, reverse: bool, neutral: float) -> Any:
    x = jnp.flip(x, axis) if reverse else x
    if exclusive:
        first = jnp.full_like(lax.slice_in_dim(x, 0, min(1, x.shape[axis]), axis=axis), neutral)
        x = jnp.concatenate([first, lax.slice_in_dim(x, 0, max(x.shape[axis] - 1, 0), axis=axis)], axis)
    result = along(x, axis)
    return jnp.flip(result, axis) if reverse else result


def cumsum(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return the sums up to each element along an axis, itself not counted where `exclusive`."""
    return _cumulative(lambda a, i: jnp.cumsum(a, i, dtype=a.dtype), x, axis % x.ndim, exclusive, reverse, 0)


@functools.cache
def _cumprod(axis: int, exclusive: bool, reverse: bool) -> Function:
    def compute(x: Any) -> Any:
        return _cumulative(lambda a, i: jnp.cumprod(a, i, dtype=a.dtype), x, axis, exclusive, reverse, 1)

    def change(t: Any, y: Any, x: Any) -> Any:
        return y * cumsum(numbers.divide_no_nan(t, x), axis, exclusive, reverse)

    return ruled(compute, change)


def cumprod(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return the products up to each element along an axis. `Cumprod` divides by elements, and takes 0 for 1 / 0."""
    return _cumprod(axis % x.ndim, bool(exclusive), bool(reverse))(x)


@functools.cache
def _prod(axes: tuple[int, ...], keepdims: bool) -> Function:
    def change(t: Any, y: Any, x: Any) -> Any:
        order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
        rows = jnp.transpose(x, order)
        count = math.prod(x.shape[axis] for axis in axes)
        flat = rows.reshape(count, math.prod(rows.shape[len(axes) :]))
        without = cumprod(flat, 0, exclusive=True) * cumprod(flat, 0, exclusive=True, reverse=True)
        factors = jnp.transpose(without.reshape(rows.shape), [order.index(axis) for axis in range(x.ndim)])
        return jnp.sum(t * factors, axes, keepdims=keepdims)

    return ruled(lambda x: jnp.prod(x, axes, keepdims=keepdims, dtype=x.dtype), change)


def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the product along axes. `Prod`: of exclusive `Cumprod`s from both ends, whose derivatives go on."""
    given = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    within = tuple(range(x.ndim)[each] for each in given)
    return _prod(within, bool(keepdims))(x)


@functools.cache
def _logcumsumexp(axis: int, reverse: bool) -> Function:
    def compute(x: Any) -> Any:
        return lax.cumlogsumexp(x, axis, reverse=reverse)

    def change(t: Any, y: Any, x: Any) -> Any:
        _, found = jax.jvp(compute, (x,), (t,))
        return found + t * jnp.where(y == -jnp.inf, jnp.nan, jnp.zeros_like(y))

    return ruled(compute, change)


def logcumsumexp(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return log(sum(exp)) up to each element. `CumulativeLogsumexp`: NaN where nothing is there to add up yet."""
    axis %= x.ndim
    return _cumulative(lambda a, i: _logcumsumexp(i, False)(a), x, axis, exclusive, reverse, -math.inf)


def _of_rows(found: Any, ids: Any) -> Any:
    """Return for each row what its segment has; of a row without segment, anything."""
    return jnp.take(found, ids, axis=0, mode="clip")


def _wide(per_row: Any, rows: Any) -> Any:
    return per_row.reshape(-1, *(1,) * (rows.ndim - 1))


def _segment_mean(power_of_size: float, count: int) -> Function:
    def compute(rows: Any, ids: Any) -> Any:
        sizes = jax.ops.segment_sum(jnp.ones(ids.shape, rows.dtype), ids, count)
        return jax.ops.segment_sum(rows, ids, count) / _wide(jnp.maximum(sizes, 1) ** power_of_size, rows)

    return compute


def _segment_extreme(most: bool, count: int, bounded: bool) -> Function:
    def compute(rows: Any, ids: Any) -> Any:
        if jnp.issubdtype(rows.dtype, jnp.integer) or bounded:
            kind = jnp.iinfo if jnp.issubdtype(rows.dtype, jnp.integer) else jnp.finfo
            last = kind(rows.dtype).min if most else kind(rows.dtype).max
        else:
            last = -jnp.inf if most else jnp.inf
        rows = jnp.where(rows != rows, jnp.asarray(last, rows.dtype), rows)
        if most:
            return jnp.maximum(jax.ops.segment_max(rows, ids, count), jnp.asarray(last, rows.dtype))
        return jnp.minimum(jax.ops.segment_min(rows, ids, count), jnp.asarray(last, rows.dtype))

    def change(t: Any, y: Any, rows: Any, ids: Any) -> Any:
        selected = (rows == _of_rows(y, ids)) & _wide(ids < count, rows)
        sizes = jax.ops.segment_sum(selected.astype(t.dtype), ids, count)
        return jax.ops.segment_sum(where(selected, t), ids, count) / jnp.maximum(sizes, 1)

    return ruled(compute, change, None)


def _segment_prod(count: int, bounded: bool) -> Function:
    def compute(rows: Any, ids: Any) -> Any:
        return jax.ops.segment_prod(rows, ids, count)

    def change(t: Any, y: Any, rows: Any, ids: Any) -> Any:
        zero = rows == 0
        zeros = jax.ops.segment_sum(zero.astype(jnp.int32), ids, count)
        safe = jnp.where(zero, jnp.ones_like(rows), rows)
        factor = jnp.where(zero, _of_rows(own(safe, ids), ids), _of_rows(y, ids) / (rows if bounded else safe))
        several = _of_rows(zeros, ids) > 1
        return jax.ops.segment_sum(where(~several, t) * factor, ids, count)

    own = ruled(compute, change, None)
    return own


@functools.cache
def segments(kind: str, count: int, *, ascending: bool = False) -> Function:
    """Return a function of (rows, the number of each row's segment) that combines the rows of each segment.

    `UnsortedSegmentMax` divides the derivative evenly among the greatest rows, and ignores NaN. `UnsortedSegmentProd`
    distinguishes segments with no zero, one zero, and several zeros.

    Args:
        kind: "sum", "mean", "sqrt_n", "prod", "max" or "min".
        count: How many segments there are. Rows of greater numbers do not count.
        ascending: Whether the numbers ascend: `SegmentMax` and its kind differ in what is infinite or NaN.
    """
    if kind == "sum":
        return lambda rows, ids: jax.ops.segment_sum(rows, ids, count)
    if kind in ("mean", "sqrt_n"):
        return _segment_mean(1.0 if kind == "mean" else 0.5, count)
    if kind == "prod":
        return _segment_prod(count, not ascending)
    return _segment_extreme(kind == "max", count, not ascending)


@functools.cache
def max_pool_3d(window: tuple[int, ...], strides: tuple[int, ...], padding: tuple[tuple[int, int], ...]) -> Function:
    """Return a function that takes the greatest element of each window.

    `MaxPool3D` on a CPU gives all of a window's derivative to each element that is the greatest; of images it is the
    first one's, as in JAX.

    Args:
        window: The window's size along each axis.
        strides: How far apart windows are.
        padding: How many elements of minus infinity before and behind.
    """

    def compute(x: Any) -> Any:
        return lax.reduce_window(x, jnp.asarray(-jnp.inf, x.dtype), lax.max, window, strides, padding)

    def change(t: Any, y: Any, x: Any) -> Any:
        around = [(low, high, 0) for low, high in padding]
        x, t = lax.pad(x, jnp.asarray(-jnp.inf, x.dtype), around), lax.pad(t, jnp.zeros((), t.dtype), around)
        total = jnp.zeros_like(y)
        for place in itertools.product(*map(range, window)):
            ends = [p + (n - 1) * stride + 1 for p, n, stride in zip(place, y.shape, strides, strict=True)]
            total += where(lax.slice(x, place, ends, strides) == y, lax.slice(t, place, ends, strides))
        return total

    return ruled(compute, change)


stitched: Final = ruled(
    lambda rows, order, places: jnp.take(rows, order, axis=0),
    lambda t, y, rows, order, places: jnp.zeros_like(y).at[places].add(t),
    None,
    None,
)
"""`DynamicStitch`: `rows[order]`, where row i goes to `places[i]`; the last stays, all have derivatives."""
