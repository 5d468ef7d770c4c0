"""Windows that slide over images and keep one number each: `tf.nn.max_pool`, `tf.nn.dilation2d`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf.derivatives import constant, max_pool_3d
from stratagem.tf.tensors.marks import Array
from stratagem.tf.tensors.operation import operation, refusal, tensor
from stratagem.tf.tensors.windows import is_last, paddings_of, spread


def _pooled(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None, mean: bool, dilations: Any = 1
) -> Any:
    x = jnp.asarray(tensor(input))
    axes = x.ndim - 2
    around: Callable[[Sequence[int], int], tuple[int, ...]] = (
        (lambda sizes, other: (other, *sizes, other))
        if is_last(data_format)
        else (lambda sizes, other: (other, other, *sizes))
    )
    window, steps, apart = (around(spread(sizes, data_format, axes), 1) for sizes in (ksize, strides, dilations))
    reach = [(size - 1) * far + 1 for size, far in zip(window, apart, strict=True)]
    if isinstance(padding, str):
        pads = tuple(jax.lax.padtype_to_pads(x.shape, reach, steps, padding.upper()))
    else:
        given = [tuple(pair) for pair in paddings_of(padding, data_format, axes)]
        pads = ((0, 0), *given, (0, 0)) if is_last(data_format) else ((0, 0), (0, 0), *given)
    if mean:
        zero = np.asarray(0, x.dtype)
        sums = jax.lax.reduce_window(x, zero, jax.lax.add, window, steps, pads, window_dilation=apart)
        ones = jnp.ones_like(x)
        return sums / jax.lax.reduce_window(ones, zero, jax.lax.add, window, steps, pads, window_dilation=apart)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        least = np.asarray(jnp.iinfo(x.dtype).min, x.dtype)
        return jax.lax.reduce_window(x, least, jax.lax.max, window, steps, pads, window_dilation=apart)
    x = jnp.where(jnp.isnan(x), jnp.finfo(x.dtype).min, x)  # passed over
    if max(apart) > 1:  # JAX has no derivative of that
        return _first_greatest(x, window, apart, [(n - far) + 1 for n, far in zip(x.shape, reach, strict=True)])
    if axes == 3:
        return max_pool_3d(window, steps, pads)(x)
    least = np.asarray(-np.inf, x.dtype)
    return jax.lax.reduce_window(x, least, jax.lax.max, window, steps, pads, window_dilation=apart)


def _first_greatest(x: Any, window: Sequence[int], apart: Sequence[int], sizes: Sequence[int]) -> Any:
    """Return the greatest elements of dilated windows, of each the first."""
    places = itertools.product(*(range(0, size * far, far) for size, far in zip(window, apart, strict=True)))
    parts = [jax.lax.slice(x, place, [p + n for p, n in zip(place, sizes, strict=True)]) for place in places]
    stacked = jnp.stack(parts)
    return jnp.take_along_axis(stacked, jnp.argmax(constant(stacked), 0)[None], 0)[0]


@operation
def max_pool(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None) -> Any:
    """Return the greatest elements of windows (`tf.nn.max_pool`, `max_pool1d`, `max_pool2d`, `max_pool3d`).

    Args:
        input: A tensor of shape (rows, ..., channels); channels come second if `data_format` begins with "NC".
        ksize: The size of the windows: one number, or one for each axis.
        strides: The distance between windows: one number, or one for each axis.
        padding: "SAME" or "VALID".
        data_format: Such as "NHWC" or "NCHW".

    NaN is ignored, as on a CPU in TensorFlow.
    """
    return _pooled(input, ksize, strides, padding, data_format, mean=False)


@operation
def avg_pool(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None) -> Any:
    """Return the means of windows (`tf.nn.avg_pool`, ...); the arguments are those of `max_pool`."""
    return _pooled(input, ksize, strides, padding, data_format, mean=True)


max_pool1d = max_pool2d = max_pool3d = max_pool
avg_pool1d = avg_pool2d = avg_pool3d = avg_pool


@operation
def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    strides: Any = None,
    padding: str = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Return the "MAX" or "AVG" of windows (`tf.nn.pool`).

    Args:
        input: A tensor of shape (rows, ..., channels); channels come second if `data_format` begins with "NC".
        window_shape: The size of the windows: one number for each axis.
        pooling_type: "MAX" or "AVG".
        strides: The distance between windows; None for 1.
        padding: "SAME" or "VALID".
        data_format: Such as "NHWC" or "NCHW".
        dilations: The distance between the elements of a window; None for 1.

    Raises:
        InputError: There is no such pooling, or dilations and strides or padding do not fit together.
    """
    if pooling_type not in ("MAX", "AVG"):
        raise InputError(f"pooling_type is {pooling_type!r}.", 'Write "MAX" or "AVG".')
    far, steps = (1 if given is None else given for given in (dilations, strides))
    if np.max(far) > 1 and (padding != "VALID" or np.max(steps) > 1):
        raise refusal(
            f"pool was asked for dilations={dilations} with strides={strides} and padding {padding!r}.",
            'Dilated windows go with strides of 1 and padding "VALID".',
        )
    return _pooled(input, window_shape, steps, padding, data_format, pooling_type == "AVG", far)


@operation
def dilation2d(input: Any, filters: Any, strides: Any, padding: str, data_format: str, dilations: Any) -> Any:
    """Return the greatest sums of images and a filter that slides over them (`tf.nn.dilation2d`).

    Args:
        input: Shape (rows, height, width, channels).
        filters: Shape (height, width, channels).
        strides: A number, or one for each axis.
        padding: "SAME" or "VALID".
        data_format: "NHWC".
        dilations: A number, or one for each axis.
    """
    x, added = jnp.asarray(tensor(input)), jnp.asarray(tensor(filters))
    (tall, wide), (down, across) = spread(strides, data_format, 2), spread(dilations, data_format, 2)
    reach = [(added.shape[0] - 1) * down + 1, (added.shape[1] - 1) * across + 1]
    pads = jax.lax.padtype_to_pads(x.shape[1:3], reach, (tall, wide), padding.upper())
    least = jnp.asarray(jnp.finfo(x.dtype).min if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min)
    x = jax.lax.pad(x, least.astype(x.dtype), [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)])
    high, long = ((n - r) // s + 1 for n, r, s in zip(x.shape[1:3], reach, (tall, wide), strict=True))
    parts = [
        x[:, i * down : i * down + (high - 1) * tall + 1 : tall, j * across : j * across + (long - 1) * wide + 1 : wide]
        + added[i, j]
        for i, j in itertools.product(range(added.shape[0]), range(added.shape[1]))
    ]
    stacked = jnp.stack(parts)
    return jnp.take_along_axis(stacked, jnp.argmax(constant(stacked), 0)[None], 0)[0]


@operation
def erosion2d(value: Array, filters: Array, strides: Any, padding: str, data_format: str, dilations: Any) -> Any:
    """Return the least differences of images and a filter that slides over them (`tf.nn.erosion2d`)."""
    turned = jnp.flip(filters, (0, 1))
    return -dilation2d(-value, turned, strides, padding, data_format, dilations)
