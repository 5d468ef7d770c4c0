"""Grouped convolutions, and the gradients of their kernels, as convolutions of several groups together.

XLA:CPU computes a convolution in groups with slow loops of its own, and the gradient of its kernel with the slowest:
that of 64 channels in 32 groups on (32, 24, 24) took 5.7 s on one core. A convolution of some groups together, with
zeros where one group's channels meet another's filters, is computed by XLA's fast code, in 16 ms. It multiplies by many
zeros, and wins while the groups together have no more channels than keep the machine's vectors busy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from stratagem.program.rules.windows import (
    channels_last,
    convolution,
    in_layout,
    may_be_rewritten,
    with_channels_last,
)

_CHANNELS: Final = 64
"""Channels of the groups that are taken together; with more of them, products with zeros cost more than they save."""

_MOST_EQUATIONS: Final = 64
"""Convolutions that take the place of one; with more, compiling would cost more than any training regains."""


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for a convolution in groups, or None for other convolutions.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    image_dims, _, _ = params["dimension_numbers"]
    images, _ = operands
    of_channels, of_rows = params["feature_group_count"], params["batch_group_count"]
    groups = of_channels * of_rows
    if groups == 1 or not may_be_rewritten(result):
        return None
    width = images.shape[image_dims[1 if of_channels > 1 else 0]] // groups
    together = max(n for n in range(1, groups + 1) if groups % n == 0 and (n == 1 or n * width <= _CHANNELS))
    if groups // together > _MOST_EQUATIONS:
        return None
    function = in_groups_of_channels if of_channels > 1 else in_groups_of_rows
    return functools.partial(function, together=together, params=params)


def in_groups_of_channels(images: jax.Array, kernel: jax.Array, together: int, params: Mapping[str, Any]) -> jax.Array:
    """Convolve groups of channels, several groups together.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        together: Number of groups that one convolution takes.
        params: Of the equation `conv_general_dilated`.
    """
    images, kernel = channels_last(images, kernel, params)
    parts = params["feature_group_count"] // together
    results = [
        _convolution(some, _block_diagonal(part, together), params)
        for some, part in zip(jnp.split(images, parts, -1), jnp.split(kernel, parts, -1), strict=True)
    ]
    return in_layout(jnp.concatenate(results, -1), params)


def in_groups_of_rows(images: jax.Array, kernel: jax.Array, together: int, params: Mapping[str, Any]) -> jax.Array:
    """Convolve groups of rows, each by the filters of its own: the gradient of a kernel with groups of channels.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        together: Number of groups that one convolution takes.
        params: Of the equation `conv_general_dilated`.
    """
    images, kernel = channels_last(images, kernel, params)
    parts = params["batch_group_count"] // together
    results = []
    for some, part in zip(jnp.split(images, parts), jnp.split(kernel, parts, -1), strict=True):
        every = _convolution(some, part, params)
        own = zip(jnp.split(every, together), range(together), strict=True)
        results += [jnp.split(rows, together, -1)[i] for rows, i in own]
    return in_layout(jnp.concatenate(results, -1), params)


def _block_diagonal(kernel: jax.Array, groups: int) -> jax.Array:
    """Return the kernel of groups together: zeros where a group's channels meet another's filters."""
    if groups == 1:
        return kernel
    *window, channels, filters = kernel.shape
    blocks = kernel.reshape(*window, 1, channels, groups, filters // groups)
    own = jnp.eye(groups, dtype=bool)[:, None, :, None]
    return jnp.where(own, blocks, jnp.zeros((), kernel.dtype)).reshape(*window, groups * channels, filters)


def _convolution(images: jax.Array, kernel: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    one = {"feature_group_count": 1, "batch_group_count": 1}
    return convolution(images, kernel, params, dimension_numbers=with_channels_last(images.ndim), **one)
