"""Gradients of convolutions' kernels, summed in parts that fit into the cache of a core.

JAX asks for such a gradient as a convolution by a window that is as large as the images: channels are its rows, and
it sums over the rows of the batch. From JAX 0.9.1 on, XLA:CPU goes through the whole batch for each place of the
result. If images and gradients are larger than the cache of a core, it waits for memory. One core of an Intel Xeon,
milliseconds, 2026-11-28, JAX 0.10.2:

| images          | kernel                  | as JAX makes it | in parts |
| --------------- | ----------------------- | --------------- | -------- |
| 64, 28, 28, 32  | 3, 3, 32, 64, unpadded  | 78              | 19       |
| 16, 64, 64, 3   | 7, 7, 3, 64, strides 2  | 7.7             | 3.3      |
| 16, 32, 32, 64  | 3, 3, 64, 64            | 34              | 10       |
| 64, 14, 14, 256 | 3, 3, 256, 256          | 388             | 122      |
| 8, 112, 112, 64 | 3, 3, 64, 64            | 236             | 79       |

JAX 0.9.0 takes 25 ms for the third row as it is. 0.7.2 takes 18, and would take 25 in parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.program.rules.windows import MOST_PLACES, convolution, is_in_one_group, may_be_rewritten

_PART_BYTES: Final = 1 << 19
"""Bytes of gradients in a part; the images themselves often have as many."""

_LEAST_ROWS: Final = 2
"""Rows of the batch in a part. They lie side by side; alone, each number is copied by itself."""

FIRST_SLOW_JAX: Final = (0, 9, 1)
"""The version of JAX from which on these gradients were measured to be slow."""


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for the gradient of a kernel, or None for other convolutions and where XLA is fast.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel; in a gradient, the kernel is the gradient of the resulting images.
        result: The images that it makes; in a gradient, these are the gradient of the kernel.
    """
    _, kernel_dims, _ = params["dimension_numbers"]
    _, kernel = operands
    if not is_slow_gradient(params, kernel, result):
        return None
    window = [kernel.shape[d] for d in kernel_dims[2:]]
    nbytes = math.prod(kernel.shape) * kernel.dtype.itemsize
    if nbytes <= 2 * _PART_BYTES:
        return None
    of_row = nbytes // kernel.shape[kernel_dims[1]]
    if of_row <= 2 * _PART_BYTES:
        together = max(_LEAST_ROWS, _power_of_two(_PART_BYTES // of_row))
        return functools.partial(in_groups_of_rows, together=together, result=result, params=params)
    height = -(-window[0] // -(-of_row // _PART_BYTES))
    return functools.partial(in_strips, height=height, result=result, params=params)


def is_slow_gradient(params: Mapping[str, Any], kernel: jax.ShapeDtypeStruct, result: jax.ShapeDtypeStruct) -> bool:
    """Return whether a convolution is the gradient of a kernel, of a kind that XLA:CPU can be slow at.

    Args:
        params: Of the equation `conv_general_dilated`.
        kernel: Its second operand; in a gradient, the gradient of the resulting images.
        result: The images that it makes; in a gradient, these are the gradient of the kernel.
    """
    _, kernel_dims, result_dims = params["dimension_numbers"]
    window, size = [kernel.shape[d] for d in kernel_dims[2:]], [result.shape[d] for d in result_dims[2:]]
    if jax.__version_info__ < FIRST_SLOW_JAX or not (is_in_one_group(params) and may_be_rewritten(result)):
        return False
    return max(params["lhs_dilation"]) == 1 and math.prod(size) < math.prod(window) and math.prod(size) <= MOST_PLACES


def in_groups_of_rows(
    images: jax.Array, kernel: jax.Array, together: int, result: jax.ShapeDtypeStruct, params: Mapping[str, Any]
) -> jax.Array:
    """Sum over the rows of the batch, some of them at a time.

    Args:
        images: The images, in any layout; the rows of the batch are their channels.
        kernel: The kernel, in any layout.
        together: Rows at a time.
        result: The images that it makes.
        params: Of the equation `conv_general_dilated`.
    """
    image_dims, kernel_dims, _ = params["dimension_numbers"]
    rows = images.shape[image_dims[1]]

    def part(first: Any, number: int) -> jax.Array:
        some = lax.dynamic_slice_in_dim(images, first, number, image_dims[1])
        return convolution(some, lax.dynamic_slice_in_dim(kernel, first, number, kernel_dims[1]), params)

    whole, rest = divmod(rows, together)
    total = _total(lambda i: part(i * together, together), whole, result)
    return total + part(rows - rest, rest) if rest else total


def in_strips(
    images: jax.Array, kernel: jax.Array, height: int, result: jax.ShapeDtypeStruct, params: Mapping[str, Any]
) -> jax.Array:
    """Sum over the rows of the batch and strips of them, one at a time.

    Args:
        images: The images, in any layout; the rows of the batch are their channels.
        kernel: The kernel, in any layout.
        height: Of a strip of the kernel.
        result: The images that it makes.
        params: Of the equation `conv_general_dilated`.
    """
    image_dims, kernel_dims, result_dims = params["dimension_numbers"]
    around, step, stride = params["padding"], params["rhs_dilation"][0], params["window_strides"][0]
    pads = [(*around[0], 0) if axis == image_dims[2] else (0, 0, 0) for axis in range(images.ndim)]
    images = lax.pad(images, jnp.zeros((), images.dtype), pads)

    def part(row: jax.Array, first: Any, height: int) -> jax.Array:
        under = (result.shape[result_dims[2]] - 1) * stride + (height - 1) * step + 1
        some = lax.dynamic_slice_in_dim(images, row, 1, image_dims[1])
        some = lax.dynamic_slice_in_dim(some, first * step, under, image_dims[2])
        strip = lax.dynamic_slice_in_dim(kernel, row, 1, kernel_dims[1])
        strip = lax.dynamic_slice_in_dim(strip, first, height, kernel_dims[2])
        return convolution(some, strip, params, padding=((0, 0), *around[1:]))

    rows, strips = images.shape[image_dims[1]], kernel.shape[kernel_dims[2]] // height
    total = _total(lambda i: part(i // strips, i % strips * height, height), rows * strips, result)
    rest = kernel.shape[kernel_dims[2]] % height
    return total + _total(lambda row: part(row, strips * height, rest), rows, result) if rest else total


def _total(part: Callable[[jax.Array], jax.Array], number: int, result: jax.ShapeDtypeStruct) -> jax.Array:
    """Return the sum of so many parts, computed in a loop: with all in a row, compiling takes as long as training."""
    first = jnp.zeros(result.shape, result.dtype)
    return lax.scan(lambda total, i: (total + part(i), None), first, jnp.arange(number))[0]


def _power_of_two(most: int) -> int:
    """Return the largest power of two that is not larger than a number, or 0."""
    return 1 << most.bit_length() >> 1
