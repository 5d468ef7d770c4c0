"""Means and variances of batches, and normalization by them: `tf.nn.moments`, `tf.nn.batch_normalization`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.tf import derivatives
from stratagem.tf.tensors.marks import Array, Sizes, Tensor
from stratagem.tf.tensors.operation import on_host, operation, xp


@operation
def moments(x: Tensor, axes: Sizes, shift: Any = None, keepdims: bool = False) -> Any:
    """Return (mean, variance) over axes (`tf.nn.moments`); second derivatives of the variance ignore the mean."""
    numpy = xp(x)
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    mean = numpy.mean(wide, axis=axes, keepdims=True)
    fixed = mean if on_host(x) else derivatives.constant(mean)
    variance = numpy.mean(numpy.square(wide - fixed), axis=axes, keepdims=True)
    found = (mean, variance) if keepdims else (numpy.squeeze(mean, axes), numpy.squeeze(variance, axes))
    return tuple(part.astype(x.dtype) for part in found)


@operation
def batch_normalization(
    x: Tensor, mean: Tensor, variance: Array, offset: Tensor | None, scale: Tensor | None, variance_epsilon: float
) -> Any:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + offset (`tf.nn.batch_normalization`)."""
    factor = derivatives.rsqrt(variance + variance_epsilon)
    factor = factor if scale is None else factor * scale
    rest = -mean * factor if offset is None else offset - mean * factor
    return x * factor.astype(x.dtype) + rest.astype(x.dtype)


@operation
def batch_norm_with_global_normalization(
    input: Any,
    mean: Any,
    variance: Any,
    beta: Any,
    gamma: Any,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> Any:
    """Return `batch_normalization` with beta as the offset, and with gamma as the scale if it is wanted.

    (`tf.nn.batch_norm_with_global_normalization`)
    """
    return batch_normalization(
        input, mean, variance, beta, gamma if scale_after_normalization else None, variance_epsilon
    )


@operation
def sufficient_statistics(
    x: Array, axes: Sizes, shift: Tensor | None = None, keepdims: bool = False
) -> tuple[Any, Any, Any, Any]:
    """Return the number of elements, their sum, the sum of squares, and the shift (`tf.nn.sufficient_statistics`).

    Args:
        x: The tensor.
        axes: The axes to sum.
        shift: A number to subtract from each element first; None for nothing.
        keepdims: Whether the axes stay, with size 1.
    """
    moved = x if shift is None else x - shift
    squares = jnp.square(x) if shift is None else derivatives.squared_difference(x, shift)
    count = jnp.asarray(np.prod([x.shape[axis] for axis in axes]), x.dtype)
    total, of_squares = (jnp.sum(part, axis=axes, keepdims=bool(keepdims)) for part in (moved, squares))
    return count, total, of_squares, shift


@operation
def normalize_moments(counts: Array, mean_ss: Tensor, variance_ss: Tensor, shift: Tensor | None) -> Any:
    """Return (mean, variance) from the result of `sufficient_statistics` (`tf.nn.normalize_moments`)."""
    part = derivatives.reciprocal(counts)
    apart = mean_ss * part
    mean = apart if shift is None else apart + shift
    return mean, variance_ss * part - jnp.square(apart)


@operation
def weighted_moments(x: Array, axes: Sizes, frequency_weights: Tensor, keepdims: bool = False) -> Any:
    """Return (mean, variance) over axes, of elements with weights (`tf.nn.weighted_moments`)."""
    counts = jnp.asarray(frequency_weights, x.dtype)
    total = jnp.sum(counts + jnp.zeros_like(x), axis=axes, keepdims=True)
    mean = derivatives.divide_no_nan(jnp.sum(counts * x, axis=axes, keepdims=True), total)
    apart = jnp.sum(counts * derivatives.squared_difference(x, mean), axis=axes, keepdims=True)
    found = (mean, derivatives.divide_no_nan(apart, total))
    return found if keepdims else tuple(jnp.squeeze(part, axes) for part in found)
