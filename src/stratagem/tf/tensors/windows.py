"""What slides a window over images: `tf.nn.conv2d`, `tf.nn.max_pool`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.tf.tensors.operation import integers, operation, tensor


def _spread(sizes: Any, data_format: str | None, axes: int) -> tuple[int, ...]:
    """Return strides or window sizes of the spatial axes: given as a number, as those, or for all axes."""
    if np.ndim(sizes) == 0:
        return (int(sizes),) * axes
    sizes = integers(sizes)
    if len(sizes) == 1:
        return sizes * axes
    if len(sizes) == axes:
        return sizes
    return sizes[2:] if data_format is not None and data_format.startswith("NC") else sizes[1:-1]


def _last(data_format: str | None) -> bool:
    return data_format is None or not data_format.startswith("NC")


def _padding(padding: Any, data_format: str | None, axes: int) -> Any:
    if isinstance(padding, str):
        return padding.upper()
    pairs = [tuple(pair) for pair in padding]
    if len(pairs) == axes:
        return pairs
    return pairs[1:-1] if _last(data_format) else pairs[2:]


def _convolved(
    x: Any, kernel: Any, strides: Any, padding: Any, data_format: str | None, dilations: Any, groups: int = 1
) -> Any:
    x, kernel = jnp.asarray(tensor(x)), jnp.asarray(tensor(kernel))
    axes = kernel.ndim - 2
    letters = "DHW"[3 - axes :]
    layout = f"N{letters}C" if _last(data_format) else f"NC{letters}"
    return jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        _spread(strides, data_format, axes),
        _padding(padding, data_format, axes),
        rhs_dilation=_spread(1 if dilations is None else dilations, data_format, axes),
        dimension_numbers=(layout, f"{letters}IO", layout),
        feature_group_count=groups,
    )


@operation
def convolution(
    input: Any,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return a convolution over one, two or three axes (`tf.nn.convolution`, `conv1d`, `conv2d`, `conv3d`).

    Args:
        input: Shape (rows, ..., channels); channels second where `data_format` begins with "NC".
        filters: Shape (..., channels in, channels out).
        strides: A number, or one for each axis.
        padding: "SAME", "VALID", or how many before and after on each axis.
        data_format: Such as "NHWC" or "NCHW".
        dilations: A number, or one for each axis.
        name: No effect.
    """
    x = tensor(input)
    groups = x.shape[-1 if _last(data_format) else 1] // tensor(filters).shape[-2]
    return _convolved(x, filters, strides, padding, data_format, dilations, groups)


@operation
def conv1d(
    input: Any,
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: str = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return a convolution over one axis (`tf.nn.conv1d`); the arguments are those of `convolution`."""
    return convolution(input, filters, stride, padding, data_format, dilations)


@operation
def conv2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return a convolution over two axes (`tf.nn.conv2d`); the arguments are those of `convolution`."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@operation
def conv3d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return a convolution over three axes (`tf.nn.conv3d`); the arguments are those of `convolution`."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@operation
def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return a convolution of each channel by itself (`tf.nn.depthwise_conv2d`).

    Args:
        input: Shape (rows, height, width, channels).
        filter: Shape (height, width, channels, results of each channel).
        strides: A number, or one for each axis.
        padding: As for `convolution`.
        data_format: "NHWC" or "NCHW".
        dilations: A number, or one for each axis.
        name: No effect.
    """
    kernel = jnp.asarray(tensor(filter))
    height, width, channels, times = kernel.shape
    flat = kernel.reshape(height, width, 1, channels * times)
    return _convolved(input, flat, strides, padding, data_format, dilations, channels)


@operation
def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return `depthwise_conv2d` and then a convolution of single pixels (`tf.nn.separable_conv2d`)."""
    apart = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return convolution(apart, pointwise_filter, 1, "VALID", data_format)


@operation
def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """Return the transpose of a convolution: the gradient of `conv2d` by its input (`tf.nn.conv2d_transpose`).

    Args:
        input: Shape (rows, height, width, channels in).
        filters: Shape (height, width, channels out, channels in).
        output_shape: The shape of the result.
        strides: A number, or one for each axis.
        padding: "SAME" or "VALID".
        data_format: "NHWC" or "NCHW".
        dilations: A number, or one for each axis.
        name: No effect.
    """
    y = jnp.asarray(tensor(input))
    forward = lambda x: _convolved(x, filters, strides, padding, data_format, dilations)  # noqa: E731
    _, pull = jax.vjp(forward, jnp.zeros(integers(output_shape), y.dtype))
    return pull(y)[0]


def _pooled(input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None, mean: bool) -> Any:
    x = jnp.asarray(tensor(input))
    axes = x.ndim - 2
    inner, steps = _spread(ksize, data_format, axes), _spread(strides, data_format, axes)
    around: Callable[[Sequence[int]], tuple[int, ...]] = (
        (lambda sizes: (1, *sizes, 1)) if _last(data_format) else (lambda sizes: (1, 1, *sizes))
    )
    if isinstance(padding, str):
        padding = padding.upper()
    else:
        padding = [(0, 0)] + [tuple(pair) for pair in _padding(padding, data_format, axes)]
        padding = [*padding, (0, 0)] if _last(data_format) else [(0, 0), *padding]
    window, steps = around(inner), around(steps)
    if not mean:
        least = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        return jax.lax.reduce_window(x, np.asarray(least, x.dtype), jax.lax.max, window, steps, padding)
    sums = jax.lax.reduce_window(x, np.asarray(0, x.dtype), jax.lax.add, window, steps, padding)
    counts = jax.lax.reduce_window(jnp.ones_like(x), np.asarray(0, x.dtype), jax.lax.add, window, steps, padding)
    return sums / counts


@operation
def max_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> Any:
    """Return the greatest elements of windows (`tf.nn.max_pool`, `max_pool1d`, `max_pool2d`, `max_pool3d`).

    Args:
        input: Shape (rows, ..., channels); channels second where `data_format` begins with "NC".
        ksize: The windows' size, a number or one for each axis.
        strides: Their distance, a number or one for each axis.
        padding: "SAME" or "VALID".
        data_format: Such as "NHWC" or "NCHW".
        name: No effect.
    """
    return _pooled(input, ksize, strides, padding, data_format, mean=False)


@operation
def avg_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> Any:
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
    name: str | None = None,
) -> Any:
    """Return the "MAX" or "AVG" of windows (`tf.nn.pool`)."""
    if pooling_type not in ("MAX", "AVG"):
        raise InputError(
            explain(f"pooling_type is {pooling_type!r}.", "It is not known how to pool.", 'Write "MAX" or "AVG".')
        )
    return _pooled(input, window_shape, strides or 1, padding, data_format, mean=pooling_type == "AVG")
