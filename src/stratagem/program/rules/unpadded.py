"""Unpadded convolutions of many bytes, computed for some rows of the batch at a time.

XLA:CPU takes two to three times as long for an unpadded convolution as for a padded one of as many products, if images
and result do not fit into the cache of a core; why was not found out. One core of an Intel Xeon, milliseconds,
2026-11-28, JAX 0.10.2:

| images          | kernel        | as JAX makes it | some rows at a time |
| --------------- | ------------- | --------------- | ------------------- |
| 64, 28, 28, 32  | 3, 3, 32, 64  | 36              | 19                  |
| 256, 14, 14, 64 | 3, 3, 64, 64  | 65              | 32                  |
| 16, 66, 66, 32  | 3, 3, 32, 32  | 52              | 18                  |
| 32, 64, 64, 16  | 5, 5, 16, 32  | 32              | 10 (strides of 2)   |
| 8, 114, 114, 64 | 3, 3, 64, 64  | 170             | 96                  |
| 128, 32, 32, 3  | 3, 3, 3, 32   | 10              | 12 (left to XLA)    |
| 4, 226, 226, 32 | 3, 3, 32, 32  | 157             | 198 (left to XLA)   |
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
from jax import lax

from stratagem.program.rules.kernel_gradients import FIRST_SLOW_JAX
from stratagem.program.rules.windows import (
    channels_last,
    convolution,
    in_layout,
    is_in_one_group,
    may_be_rewritten,
    with_channels_last,
)

_PART_BYTES: Final = 1 << 20
"""Bytes of images and results in a part, if one row has no more."""

_MANY_BYTES: Final = 8 << 20
"""Bytes of a row, at most, and of all rows, at least. XLA computes a bias and an activation together with a convolution
that it is given whole, which saves more on fewer bytes: an evaluation of the MNIST network takes 4.5 ms so, and 6.8 in
parts."""

_LEAST_CHANNELS: Final = 16


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for an unpadded convolution of many bytes, or None for other convolutions.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel.
        result: The images that it makes.
    """
    image_dims, kernel_dims, _ = params["dimension_numbers"]
    images, kernel = operands
    if jax.__version_info__ < FIRST_SLOW_JAX or not (is_in_one_group(params) and may_be_rewritten(result)):
        return None
    is_spread, is_padded = max(params["lhs_dilation"]) > 1, any(map(any, params["padding"]))
    if is_spread or is_padded or all(kernel.shape[d] == 1 for d in kernel_dims[2:]):
        return None
    rows = images.shape[image_dims[0]]
    of_row = (math.prod(images.shape) + math.prod(result.shape)) * images.dtype.itemsize // rows
    if images.shape[image_dims[1]] < _LEAST_CHANNELS or not of_row <= _MANY_BYTES <= rows * of_row:
        return None
    together = max(n for n in range(1, rows + 1) if rows % n == 0 and (n == 1 or n * of_row <= _PART_BYTES))
    return functools.partial(some_rows_at_a_time, together=together, params=params)


def some_rows_at_a_time(images: jax.Array, kernel: jax.Array, together: int, params: Mapping[str, Any]) -> jax.Array:
    """Convolve the rows of the batch, some of them at a time.

    Args:
        images: The images, in any layout.
        kernel: The kernel, in any layout.
        together: Rows at a time, a divisor of their number.
        params: Of the equation `conv_general_dilated`.
    """
    images, kernel = channels_last(images, kernel, params)
    layout = with_channels_last(images.ndim)
    parts = images.reshape(-1, together, *images.shape[1:])
    result = lax.map(lambda part: convolution(part, kernel, params, dimension_numbers=layout), parts)
    return in_layout(result.reshape(-1, *result.shape[2:]), params)
