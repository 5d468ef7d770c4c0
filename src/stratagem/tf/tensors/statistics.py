"""Means and variances of batches, and normalization by them: `tf.nn.moments`, `tf.nn.batch_normalization`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.tf import derivatives
from stratagem.tf.tensors.operation import integers, on_host, operation, tensor, xp


@operation
def moments(x: Any, axes: Any, shift: Any = None, keepdims: bool = False) -> Any:
    """Return (mean, variance) over axes (`tf.nn.moments`); second derivatives of the variance pass over the mean."""
    given = tensor(x)
    numpy, along = xp(given), integers(axes)
    wide = given.astype(np.float32) if given.dtype == np.float16 else given
    mean = numpy.mean(wide, axis=along, keepdims=True)
    fixed = mean if on_host(given) else derivatives.constant(mean)
    variance = numpy.mean(numpy.square(wide - fixed), axis=along, keepdims=True)
    found = (mean, variance) if keepdims else (numpy.squeeze(mean, along), numpy.squeeze(variance, along))
    return tuple(part.astype(given.dtype) for part in found)


@operation
def batch_normalization(x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float) -> Any:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + offset (`tf.nn.batch_normalization`)."""
    x, mean = tensor(x), tensor(mean)
    factor = derivatives.rsqrt(jnp.asarray(tensor(variance)) + variance_epsilon)
    factor = factor if scale is None else factor * tensor(scale)
    rest = -mean * factor if offset is None else tensor(offset) - mean * factor
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
    """Return `batch_normalization` with gamma for the scale, if it is wanted, and beta for the offset.

    (`tf.nn.batch_norm_with_global_normalization`)
    """
    return batch_normalization(
        input, mean, variance, beta, gamma if scale_after_normalization else None, variance_epsilon
    )


@operation
def sufficient_statistics(x: Any, axes: Any, shift: Any = None, keepdims: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return (how many elements, their sum, the sum of their squares, the shift) (`tf.nn.sufficient_statistics`).

    Args:
        x: The tensor.
        axes: The axes that are summed over.
        shift: What is taken from each element first; None for nothing.
        keepdims: Whether the axes stay, with size 1.
    """
    x, along = jnp.asarray(tensor(x)), integers(axes)
    moved = x if shift is None else x - tensor(shift)
    squares = jnp.square(x) if shift is None else derivatives.squared_difference(x, tensor(shift))
    count = jnp.asarray(np.prod([x.shape[axis] for axis in along]), x.dtype)
    total, of_squares = (jnp.sum(part, axis=along, keepdims=bool(keepdims)) for part in (moved, squares))
    return count, total, of_squares, None if shift is None else tensor(shift)


@operation
def normalize_moments(counts: Any, mean_ss: Any, variance_ss: Any, shift: Any) -> Any:
    """Return (mean, variance) of what `sufficient_statistics` returns (`tf.nn.normalize_moments`)."""
    part = derivatives.reciprocal(jnp.asarray(tensor(counts)))
    apart = tensor(mean_ss) * part
    mean = apart if shift is None else apart + tensor(shift)
    return mean, tensor(variance_ss) * part - jnp.square(apart)


@operation
def weighted_moments(x: Any, axes: Any, frequency_weights: Any, keepdims: bool = False) -> Any:
    """Return (mean, variance) over axes of elements that count differently (`tf.nn.weighted_moments`)."""
    x, along = jnp.asarray(tensor(x)), integers(axes)
    counts = jnp.asarray(tensor(frequency_weights), x.dtype)
    total = jnp.sum(counts + jnp.zeros_like(x), axis=along, keepdims=True)
    mean = derivatives.divide_no_nan(jnp.sum(counts * x, axis=along, keepdims=True), total)
    apart = jnp.sum(counts * derivatives.squared_difference(x, mean), axis=along, keepdims=True)
    found = (mean, derivatives.divide_no_nan(apart, total))
    return found if keepdims else tuple(jnp.squeeze(part, along) for part in found)
