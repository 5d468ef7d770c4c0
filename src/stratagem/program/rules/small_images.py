"""Convolutions of images that are smaller than the window, as products of matrices.

XLA:CPU has two ways to compute a convolution. The quick one does not take images smaller than the window, such as the
2x2 images with 512 channels at the end of a ResNet, and the other one takes 30 to 50 times as long for them. As one
product of matrices they are as quick as any convolution. Sums are added up in another order, as between those two ways.
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
    is_in_one_group,
    may_be_rewritten,
    padded,
    under_window,
)


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a convolution of small images, or None for other convolutions.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    image_dims, kernel_dims, result_dims = params["dimension_numbers"]
    images, kernel = operands
    window = [kernel.shape[i] for i in kernel_dims[2:]]
    smaller = any(images.shape[i] < size for i, size in zip(image_dims[2:], window, strict=True))
    if not smaller or math.prod(window) > MOST_PLACES:
        return None
    if not (is_in_one_group(params) and may_be_rewritten(result)):
        return None
    return functools.partial(as_product, size=[result.shape[i] for i in result_dims[2:]], params=params)


def as_product(images: jax.Array, kernel: jax.Array, size: Sequence[int], params: Mapping[str, Any]) -> jax.Array:
    """Convolve images by one product: what lies under the window at each place, times the kernel.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        size: Of the resulting images.
        params: Of the equation `conv_general_dilated`, which say the rest.
    """
    images, kernel = channels_last(images, kernel, params)
    window, strides = kernel.shape[:-2], params["window_strides"]
    under = under_window(padded(images, params), window, params["rhs_dilation"], size, strides)
    result = lax.dot_general(
        jnp.concatenate(under, -1),
        kernel.reshape(-1, kernel.shape[-1]),
        (((len(size) + 1,), (0,)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )
    return in_layout(result, params)
