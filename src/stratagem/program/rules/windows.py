"""Layouts and windows of convolutions, for the rules that write them in another way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

MOST_PLACES: Final = 64
"""Places of a window that become one equation each; a larger window is left to XLA."""

_HOW: Final = (
    *("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count"),
    *("precision", "preferred_element_type"),
)
"""Parameters of a convolution that do not depend on its layout."""


def may_be_rewritten(result: jax.ShapeDtypeStruct) -> bool:
    """Return whether a result has numbers, of a type that products and sums round as XLA's convolutions do."""
    return result.dtype.name in ("float32", "float64") and math.prod(result.shape) > 0


def is_in_one_group(params: Mapping[str, Any]) -> bool:
    """Return whether a convolution takes all channels of all rows together.

    Args:
        params: Parameters of the equation `conv_general_dilated`.
    """
    return params["feature_group_count"] == params["batch_group_count"] == 1


def channels_last(images: jax.Array, kernel: jax.Array, params: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
    """Return images of (rows, *size, channels) and a kernel of (*window, channels, filters).

    Args:
        images: First operand of the equation `conv_general_dilated`.
        kernel: Its second operand.
        params: Its parameters.
    """
    image_dims, kernel_dims, _ = params["dimension_numbers"]
    images = images.transpose(image_dims[0], *image_dims[2:], image_dims[1])
    return images, kernel.transpose(*kernel_dims[2:], kernel_dims[1], kernel_dims[0])


def in_layout(result: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    """Return images of (rows, *size, channels) in the layout of an equation's result.

    Args:
        result: The images.
        params: Parameters of the equation `conv_general_dilated`.
    """
    _, _, result_dims = params["dimension_numbers"]
    place_of = {result_dims[0]: 0, result_dims[1]: result.ndim - 1, **{d: i for i, d in enumerate(result_dims[2:], 1)}}
    return result.transpose([place_of[d] for d in range(result.ndim)])


def padded(images: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    """Return images of (rows, *size, channels), spread and surrounded by zeros as an equation says.

    Args:
        images: The images.
        params: Parameters of the equation `conv_general_dilated`.
    """
    spread = [(*around, d - 1) for around, d in zip(params["padding"], params["lhs_dilation"], strict=True)]
    return lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *spread, (0, 0, 0)])


def under_window(
    images: jax.Array, window: Sequence[int], dilation: Sequence[int], size: Sequence[int], strides: Sequence[int]
) -> list[jax.Array]:
    """Return what lies under each place of a window, in the order of the places.

    Args:
        images: Padded images of (rows, *size, channels).
        window: Places of the window in each direction.
        dilation: Pixels from one place of the window to the next.
        size: Positions of the window in each direction, which is the size of what is returned.
        strides: Pixels from one position to the next.
    """
    under = []
    for place in itertools.product(*map(range, window)):
        start = [p * d for p, d in zip(place, dilation, strict=True)]
        end = [first + (n - 1) * stride + 1 for first, n, stride in zip(start, size, strides, strict=True)]
        whole = images.shape[0], *end, images.shape[-1]
        under.append(lax.slice(images, (0, *start, 0), whole, (1, *strides, 1)))
    return under


def with_channels_last(axes: int) -> lax.ConvDimensionNumbers:
    """Return the layout of images of (rows, *size, channels) and a kernel of (*window, channels, filters).

    Args:
        axes: Number of axes of the images.
    """
    channels = axes - 1
    images = (0, channels, *range(1, channels))
    return lax.ConvDimensionNumbers(images, (channels, channels - 1, *range(channels - 1)), images)


def convolution(images: jax.Array, kernel: jax.Array, params: Mapping[str, Any], **changed: Any) -> jax.Array:
    """Return the convolution that an equation makes, computed with channels last (`rules.channels_last`).

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        params: Parameters of the equation `conv_general_dilated`.
        changed: Those that have other values.
    """
    how = {**params, **changed}
    images, kernel = channels_last(images, kernel, how)
    kept = {name: how[name] for name in _HOW}
    result = lax.conv_general_dilated(images, kernel, **kept, dimension_numbers=with_channels_last(images.ndim))
    return in_layout(result, how)
