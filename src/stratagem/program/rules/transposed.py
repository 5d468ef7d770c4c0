"""Gradients of the kernels of transposed convolutions, with images and window exchanged.

JAX asks for such a gradient as a convolution of the small images, spread, by a window as large as the large images.
XLA:CPU's fast code does not take that: the gradient of (3, 3, 32, 64) with strides of 2 on (32, 32, 32, 64) took 691 ms
on one core. A convolution of the large images by a window that is the small ones gives the same sums in reverse, in
28 ms, the time of the gradient for a convolution with strides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax

from stratagem.program.rules import kernel_gradients, kernel_products
from stratagem.program.rules.windows import convolution, is_in_one_group


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a convolution of spread images by a large window, or None for other convolutions.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    _, kernel_dims, result_dims = params["dimension_numbers"]
    _, kernel = operands
    if not is_in_one_group(params) or max(params["lhs_dilation"]) == 1:
        return None
    if max(params["window_strides"]) > 1 or max(params["rhs_dilation"]) > 1:
        return None
    window, size = [kernel.shape[i] for i in kernel_dims[2:]], [result.shape[i] for i in result_dims[2:]]
    if not 0 < math.prod(size) < math.prod(window):
        return None
    return functools.partial(exchanged, result=result, params=params)


def exchanged(
    images: jax.Array, kernel: jax.Array, result: jax.ShapeDtypeStruct, params: Mapping[str, Any]
) -> jax.Array:
    """Convolve the kernel by the images, which gives the same sums in the reverse order of places.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        result: The images that it makes.
        params: Of the equation `conv_general_dilated`.
    """
    image_dims, kernel_dims, result_dims = params["dimension_numbers"]
    spread = [(images.shape[d] - 1) * by + 1 for d, by in zip(image_dims[2:], params["lhs_dilation"], strict=True)]
    size = [result.shape[d] for d in result_dims[2:]]
    large = [kernel.shape[d] for d in kernel_dims[2:]]
    before = [n - 1 - low for n, (low, _) in zip(size, params["padding"], strict=True)]
    after = [s + n - 1 - low - b for s, n, low, b in zip(spread, size, before, large, strict=True)]
    how = {
        **params,
        "dimension_numbers": lax.ConvDimensionNumbers(
            kernel_dims, image_dims, (result_dims[1], result_dims[0], *result_dims[2:])
        ),
        "padding": tuple(zip(before, after, strict=True)),
        "lhs_dilation": params["rhs_dilation"],
        "rhs_dilation": params["lhs_dilation"],
    }
    # It is the convolution of a gradient without transposition, and as slow as that one.
    quick = (rule.quick_convolution(how, (kernel, images), result) for rule in (kernel_products, kernel_gradients))
    convolve = next((each for each in quick if each is not None), functools.partial(convolution, params=how))
    return lax.rev(convolve(kernel, images), result_dims[2:])
