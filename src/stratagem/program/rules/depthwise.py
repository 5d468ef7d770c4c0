"""Depthwise convolutions, and the gradients of their kernels, as products of shifted images.

XLA:CPU computes a convolution of each channel by itself with slow loops: that of (32, 24, 24, 144) with a window of 3x3
took 55 ms on one core, and the gradient of its kernel 120. As a sum of nine products of shifted images, which XLA
compiles to one loop, it takes 2 ms. The gradient of the kernel is a sum over rows and positions, which XLA:CPU adds up
number by number; as products with ones, row by row, it takes 4 ms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.program.rules.windows import (
    MOST_PLACES,
    channels_last,
    in_layout,
    may_be_rewritten,
    padded,
    under_window,
)


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a depthwise convolution or the gradient of its kernel, or None for other convolutions.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    image_dims, kernel_dims, result_dims = params["dimension_numbers"]
    images, kernel = operands
    if not may_be_rewritten(result):
        return None
    size = tuple(result.shape[i] for i in result_dims[2:])
    groups, of_rows = params["feature_group_count"], params["batch_group_count"]
    if groups > 1 and images.shape[image_dims[1]] == groups:
        window = [kernel.shape[i] for i in kernel_dims[2:]]
        function = shifted_products
    elif of_rows > 1 and images.shape[image_dims[0]] == of_rows:
        window = size
        function = kernel_gradient
    else:
        return None
    return functools.partial(function, size=size, params=params) if math.prod(window) <= MOST_PLACES else None


def shifted_products(images: jax.Array, kernel: jax.Array, size: Sequence[int], params: Mapping[str, Any]) -> jax.Array:
    """Convolve each channel by itself: the sum over the places of the window of what lies under it times its number.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout, with the filters of each channel side by side.
        size: Of the resulting images.
        params: Of the equation `conv_general_dilated`.
    """
    images, kernel = channels_last(images, kernel, params)
    window, filters = kernel.shape[:-2], kernel.shape[-1] // images.shape[-1]
    under = under_window(padded(images, params), window, params["rhs_dilation"], size, params["window_strides"])
    products = [_for_filters(a, filters) * b for a, b in zip(under, kernel.reshape(-1, kernel.shape[-1]), strict=True)]
    return in_layout(functools.reduce(jnp.add, products), params)


def kernel_gradient(images: jax.Array, source: jax.Array, size: Sequence[int], params: Mapping[str, Any]) -> jax.Array:
    """Return the gradient of a depthwise convolution's kernel.

    JAX asks for it as a convolution of the images, with channels in the place of rows, by what comes from the result.

    Args:
        images: The images, in any layout.
        source: What comes from the result, in any layout.
        size: Of the kernel's window.
        params: Of the equation `conv_general_dilated`.
    """
    # The rows of the batch are the channels of this convolution. To put them last and back would cost twice the rest.
    of_images, of_source, _ = params["dimension_numbers"]
    images = images.transpose(of_images[1], *of_images[2:], of_images[0])
    source = source.transpose(of_source[1], *of_source[2:], of_source[0])
    positions, filters = source.shape[1:-1], source.shape[-1] // images.shape[-1]
    rows = _for_filters(padded(images, params), filters)
    ones = jnp.ones((1, math.prod(positions)), images.dtype)

    def add_row(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        image, back = row
        under = under_window(image[None], size, params["window_strides"], positions, params["rhs_dilation"])
        # Of the highest precision, as sums are: a product may be told to round its operands.
        sums = [jnp.matmul(ones, (a[0] * back).reshape(-1, back.shape[-1]), precision="highest") for a in under]
        return total + jnp.concatenate(sums), None

    nothing = jnp.zeros((math.prod(size), source.shape[-1]), images.dtype)
    total, _ = lax.scan(add_row, nothing, (rows, source))
    return in_layout(total.reshape(1, *size, -1), params)


def _for_filters(images: jax.Array, filters: int) -> jax.Array:
    """Return images with each channel once for each of its filters."""
    return images if filters == 1 else jnp.repeat(images, filters, -1)
