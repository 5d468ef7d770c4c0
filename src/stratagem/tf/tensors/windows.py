"""Convolutions and their transposes: `tf.nn.conv2d`, `tf.nn.conv2d_transpose`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nn
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.tf.tensors.marks import Array, Sizes, Tensor
from stratagem.tf.tensors.operation import integers, operation, refusal, tensor


def spread(sizes: Any, data_format: str | None, axes: int) -> tuple[int, ...]:
    """Return strides or window sizes of the spatial axes: given as a number, as those, or for all axes."""
    if np.ndim(sizes) == 0:
        return (int(sizes),) * axes
    sizes = integers(sizes)
    if len(sizes) == 1:
        return sizes * axes
    if len(sizes) == axes:
        return sizes
    return sizes[2:] if data_format is not None and data_format.startswith("NC") else sizes[1:-1]


def is_last(data_format: str | None) -> bool:
    """Whether the channels are the last axis."""
    return data_format is None or not data_format.startswith("NC")


def paddings_of(padding: Any, data_format: str | None, axes: int) -> Any:
    """Return the padding as JAX takes it: a word, or (before, after) of each axis of space."""
    if isinstance(padding, str):
        return padding.upper()
    pairs = [tuple(pair) for pair in padding]
    if len(pairs) == axes:
        return pairs
    return pairs[1:-1] if is_last(data_format) else pairs[2:]


def _convolved(
    x: Any, kernel: Any, strides: Any, padding: Any, data_format: str | None, dilations: Any, groups: int = 1
) -> Any:
    x, kernel = jnp.asarray(tensor(x)), jnp.asarray(tensor(kernel))
    axes = kernel.ndim - 2
    letters = "DHW"[3 - axes :]
    layout = f"N{letters}C" if is_last(data_format) else f"NC{letters}"
    return jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        spread(strides, data_format, axes),
        paddings_of(padding, data_format, axes),
        rhs_dilation=spread(1 if dilations is None else dilations, data_format, axes),
        dimension_numbers=(layout, f"{letters}IO", layout),
        feature_group_count=groups,
    )


@operation
def convolution(
    input: Tensor,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Return a convolution over one, two or three axes (`tf.nn.convolution`, `conv1d`, `conv2d`, `conv3d`).

    Args:
        input: A tensor of shape (rows, ..., channels); channels come second if `data_format` begins with "NC".
        filters: Shape (..., channels in, channels out).
        strides: A number, or one for each axis.
        padding: "SAME", "VALID", or the numbers of elements to add before and after each axis.
        data_format: Such as "NHWC" or "NCHW".
        dilations: A number, or one for each axis.
    """
    groups = input.shape[-1 if is_last(data_format) else 1] // tensor(filters).shape[-2]
    return _convolved(input, filters, strides, padding, data_format, dilations, groups)


@operation
def conv1d(input: Any, filters: Any, stride: Any, padding: Any, data_format: str = "NWC", dilations: Any = None) -> Any:
    """Return a convolution over one axis (`tf.nn.conv1d`); the arguments are those of `convolution`."""
    return convolution(input, filters, stride, padding, data_format, dilations)


@operation
def conv2d(
    input: Any, filters: Any, strides: Any, padding: Any, data_format: str = "NHWC", dilations: Any = None
) -> Any:
    """Return a convolution over two axes (`tf.nn.conv2d`); the arguments are those of `convolution`."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@operation
def conv3d(
    input: Any, filters: Any, strides: Any, padding: Any, data_format: str = "NDHWC", dilations: Any = None
) -> Any:
    """Return a convolution over three axes (`tf.nn.conv3d`); the arguments are those of `convolution`."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@operation
def depthwise_conv2d(
    input: Any, filter: Array, strides: Any, padding: Any, data_format: str | None = None, dilations: Any = None
) -> Any:
    """Return a separate convolution of each channel (`tf.nn.depthwise_conv2d`).

    Args:
        input: Shape (rows, height, width, channels).
        filter: Shape (height, width, channels, results of each channel).
        strides: A number, or one for each axis.
        padding: As for `convolution`.
        data_format: "NHWC" or "NCHW".
        dilations: A number, or one for each axis.
    """
    height, width, channels, times = filter.shape
    flat = filter.reshape(height, width, 1, channels * times)
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
) -> Any:
    """Return `depthwise_conv2d` and then a convolution of single pixels (`tf.nn.separable_conv2d`)."""
    apart = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return convolution(apart, pointwise_filter, 1, "VALID", data_format)


@operation
def conv_transpose(
    input: Array,
    filters: Any,
    output_shape: Sizes,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Return the transpose of a convolution over one, two or three axes (`tf.nn.conv_transpose`).

    This is the gradient of a convolution by its input. `conv1d_transpose`, `conv2d_transpose` and `conv3d_transpose`
    are the same function.

    Args:
        input: Shape (rows, ..., channels in).
        filters: Shape (..., channels out, channels in).
        output_shape: The shape of the result.
        strides: A number, or one for each axis.
        padding: "SAME" or "VALID".
        data_format: Such as "NHWC" or "NCHW".
        dilations: A number, or one for each axis.

    Raises:
        InputError: An input of that shape cannot have such a result.
    """
    forward = lambda x: _convolved(x, filters, strides, padding, data_format, dilations)  # noqa: E731
    shape, pull = jax.vjp(forward, jnp.zeros(output_shape, input.dtype))
    if shape.shape != input.shape:
        raise refusal(
            f"output_shape is {output_shape} for an input of shape {input.shape}.",
            f"A convolution of that shape makes {shape.shape}: correct output_shape, the strides or the padding.",
        )
    return pull(input)[0]


conv1d_transpose = conv2d_transpose = conv3d_transpose = conv_transpose


@operation
def atrous_conv2d(value: Any, filters: Any, rate: int, padding: Any) -> Any:
    """Return `conv2d` with dilated filters (`tf.nn.atrous_conv2d`)."""
    return convolution(value, filters, 1, padding, "NHWC", rate)


@operation
def atrous_conv2d_transpose(value: Any, filters: Any, output_shape: Any, rate: int, padding: Any) -> Any:
    """Return `conv2d_transpose` with dilated filters (`tf.nn.atrous_conv2d_transpose`)."""
    return conv_transpose(value, filters, output_shape, 1, padding, "NHWC", rate)


@operation
def depthwise_conv2d_backprop_input(
    input_sizes: Sizes,
    filter: Any,
    out_backprop: Array,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
) -> Any:
    """Return the gradient of `depthwise_conv2d` by its input (`tf.nn.depthwise_conv2d_backprop_input`)."""
    forward = lambda x: depthwise_conv2d(x, filter, strides, padding, data_format, dilations)  # noqa: E731
    return jax.vjp(forward, jnp.zeros(input_sizes, out_backprop.dtype))[1](out_backprop)[0]


@operation
def depthwise_conv2d_backprop_filter(
    input: Any,
    filter_sizes: Sizes,
    out_backprop: Array,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
) -> Any:
    """Return the gradient of `depthwise_conv2d` by its filter (`tf.nn.depthwise_conv2d_backprop_filter`)."""
    forward = lambda k: depthwise_conv2d(input, k, strides, padding, data_format, dilations)  # noqa: E731
    return jax.vjp(forward, jnp.zeros(filter_sizes, out_backprop.dtype))[1](out_backprop)[0]
