"""Gradients of convolutions' kernels as products of matrices, for some places of the images at a time.

JAX asks for such a gradient as a convolution whose result is as small as the kernel. XLA:CPU computes neighbours in a
line of a result together, and a kernel of 3x3 has three of them: it reaches 25 to 35 GFLOP/s, where a product of
matrices has 50 to 60. So what lies under the kernel is put side by side and multiplied by the gradients. One core of
an AMD EPYC with AVX2, milliseconds, 2026-11-30, JAX 0.10.2:

| images            | kernel                   | as JAX makes it | summed in parts | products |
| ----------------- | ------------------------ | --------------- | --------------- | -------- |
| 16, 64, 64, 64    | 3, 3, 64, 32             | 115             | 83              | 69       |
| 16, 32, 32, 64    | 3, 3, 64, 64             | 37              | 27              | 21       |
| 16, 8, 8, 256     | 3, 3, 256, 256           | 22              |                 | 18       |
| 16, 64, 64, 64    | 3, 3, 64, 128, strides 2 | 147             | 79              | 41       |
| 16, 17, 17, 128   | 7, 1, 128, 128           | 88              | 42              | 17       |
| 4, 16, 16, 16, 32 | 3, 3, 3, 32, 64          | 110             | 140             | 30       |

The fourth column is `kernel_gradients`. On an AMD EPYC with AVX-512, where products of matrices have 100 GFLOP/s, this
takes 0.41 to 1.02 of the time of JAX's convolutions: 18 and 44 ms for images of (64, 26, 26, 32) and a kernel of
(3, 3, 32, 64), 15.4 and 15.0 for (16, 32, 32, 64) and (3, 3, 64, 64).

Where kernels have five columns, images one direction or few channels, convolutions are as fast or faster: one for a
kernel of (3, 64, 128) on (32, 200, 64) takes 5.0, and products 6.3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.program.rules.kernel_gradients import is_slow_gradient
from stratagem.program.rules.windows import in_layout

_MOST_COLUMNS: Final = 4
"""Columns of a kernel. With more, XLA's convolution computes as many neighbours together as it can."""

_LEAST_CHANNELS: Final = 32
"""Channels of the images. To put a few numbers side by side takes longer than to multiply them."""

_LEAST_BYTES: Final = 1 << 18
"""Bytes of the gradients. With fewer a convolution takes as long."""

_PART_BYTES: Final = 1 << 17
"""Bytes of the gradients, or of the images if they have more channels, that go into one product."""

_LEAST_POSITIONS: Final = 128
"""Places of the images that go into one product at least, however many channels they have."""


def quick_convolution(
    params: Mapping[str, Any], operands: Sequence[jax.ShapeDtypeStruct], result: jax.ShapeDtypeStruct
) -> Callable[[jax.Array, jax.Array], jax.Array] | None:
    """Return a function for the gradient of a kernel, or None for other convolutions and where XLA is fast.

    Args:
        params: Of the equation `conv_general_dilated`.
        operands: The images and the kernel; in a gradient, the kernel is the gradient of the resulting images.
        result: The images that it makes; in a gradient, these are the gradient of the kernel.
    """
    image_dims, _, result_dims = params["dimension_numbers"]
    images, kernel = operands
    size = [result.shape[d] for d in result_dims[2:]]
    if not is_slow_gradient(params, kernel, result) or len(size) == 1 or size[-1] > _MOST_COLUMNS:
        return None
    if images.shape[image_dims[0]] < _LEAST_CHANNELS:
        return None
    if math.prod(kernel.shape) * kernel.dtype.itemsize < _LEAST_BYTES:
        return None
    return functools.partial(in_products, result=result, params=params)


def in_products(
    images: jax.Array, kernel: jax.Array, result: jax.ShapeDtypeStruct, params: Mapping[str, Any]
) -> jax.Array:
    """Sum over the rows of the batch and the places of the images, some of them at a time.

    Args:
        images: The images, in any layout; the rows of the batch are their channels.
        kernel: The kernel, in any layout.
        result: The images that it makes.
        params: Of the equation `conv_general_dilated`.
    """
    image_dims, kernel_dims, result_dims = params["dimension_numbers"]
    images = images.transpose(image_dims[1], *image_dims[2:], image_dims[0])
    gradients = kernel.transpose(kernel_dims[1], *kernel_dims[2:], kernel_dims[0])
    size = [result.shape[d] for d in result_dims[2:]]
    rows, lines, *columns, filters = gradients.shape
    channels = images.shape[-1]
    together, height = _sizes_of_part(gradients.shape, channels, gradients.dtype.itemsize)
    pads = [(*around, 0) for around in params["padding"]]
    if height < lines:
        images, pads[0] = _padded(images, [pads[0]]), (0, 0, 0)

    def product(row: Any, line: Any, beside: jax.Array) -> tuple[jax.Array, jax.Array]:
        together, height = beside.shape[:2]
        strip = lax.dynamic_slice_in_dim(gradients, row, together, 0)
        strip = lax.dynamic_slice_in_dim(strip, line, height, 1)
        some = lax.dynamic_slice_in_dim(images, row, together, 0)
        if height < lines:
            under = (size[0] - 1) * params["window_strides"][0] + (height - 1) * params["rhs_dilation"][0] + 1
            some = lax.dynamic_slice_in_dim(some, line * params["rhs_dilation"][0], under, 1)
        beside = _put_beside(_padded(some, pads), beside, size, params["window_strides"], params["rhs_dilation"])
        across = strip.reshape(-1, filters).T
        numbers = beside.reshape(across.shape[1], -1)
        return lax.dot(across, numbers, precision=params["precision"]), beside

    def total(number: int, where: Callable[[Any], tuple[Any, Any]], together: int, height: int) -> jax.Array:
        beside = jnp.zeros((together, height, *columns, math.prod(size), channels), result.dtype)
        first = jnp.zeros((filters, math.prod(size) * channels), result.dtype)
        return _sum(lambda i, beside: product(*where(i), beside), number, first, beside)

    if height < lines:
        strips, rest = divmod(lines, height)
        found = total(rows * strips, lambda i: (i // strips, i % strips * height), 1, height)
        found += total(rows, lambda i: (i, strips * height), 1, rest) if rest else 0
    else:
        groups, rest = divmod(rows, together)
        found = total(groups, lambda i: (i * together, 0), together, lines)
        found += total(1, lambda i: (i + groups * together, 0), rest, lines) if rest else 0
    axes = len(size)
    found = found.reshape(filters, *size, channels).transpose(axes + 1, *range(1, axes + 1), 0)
    return in_layout(found, params)


def _sum(
    product: Callable[[Any, jax.Array], tuple[jax.Array, jax.Array]], number: int, first: jax.Array, beside: jax.Array
) -> jax.Array:
    """Sum products in a loop: with all in a row, compiling takes as long as training.

    Args:
        product: Function of its number and of memory for what lies side by side; returns the product, and the memory.
        number: How many there are.
        first: What they are added to.
        beside: The memory, which all take.
    """

    def add(state: tuple[jax.Array, jax.Array], i: Any) -> tuple[tuple[jax.Array, jax.Array], None]:
        made, beside = product(i, state[1])
        return (state[0] + made, beside), None

    return lax.scan(add, (first, beside), jnp.arange(number, dtype=jnp.uint32))[0][0]


def _put_beside(
    images: jax.Array, beside: jax.Array, window: Sequence[int], dilation: Sequence[int], strides: Sequence[int]
) -> jax.Array:
    """Put what lies under a window side by side for each of its positions: (rows, *positions, places, channels).

    A loop over the places of the window compiles in half of the time that all in a row would take.

    Args:
        images: Padded images of (rows, *size, channels).
        beside: Memory for the result.
        window: Places of the window in each direction.
        dilation: Pixels from one place of the window to the next.
        strides: Pixels from one position to the next.
    """
    rows, *positions, _, channels = beside.shape
    under = [(n - 1) * stride + 1 for n, stride in zip(positions, strides, strict=True)]

    def put(beside: jax.Array, place: jax.Array) -> tuple[jax.Array, None]:
        zero, start, rest = jnp.zeros_like(place), [], place
        for places, step in zip(reversed(window), reversed(dilation), strict=True):
            start.insert(0, rest % places * step)
            rest = rest // places
        some = lax.dynamic_slice(images, (zero, *start, zero), (rows, *under, channels))
        some = lax.slice(some, [0] * some.ndim, some.shape, (1, *strides, 1))
        where = (*[zero] * (len(positions) + 1), place, zero)
        return lax.dynamic_update_slice(beside, jnp.expand_dims(some, -2), where), None

    return lax.scan(put, beside, jnp.arange(math.prod(window), dtype=jnp.uint32))[0]


def _sizes_of_part(shape: Sequence[int], channels: int, itemsize: int) -> tuple[int, int]:
    """Return how many rows of the batch go into one product, and how many lines of each; of many lines, of one row.

    Args:
        shape: Of the gradients: (rows, lines, *columns, filters).
        channels: Of the images.
        itemsize: Bytes of a number.
    """
    rows, lines, *columns, filters = shape
    line = math.prod(columns)
    positions = max(_LEAST_POSITIONS, _PART_BYTES // (max(filters, channels) * itemsize))
    if lines * line <= positions:
        return _even(rows, positions // (lines * line)), lines
    return 1, _even(lines, max(1, positions // line))


def _even(number: int, most: int) -> int:
    """Return a size of parts of a number, at most so large, of which the last is about as large as the others."""
    return -(-number // -(-number // most))


def _padded(images: jax.Array, pads: Sequence[tuple[int, int, int]]) -> jax.Array:
    """Return images of (rows, *size, channels) with zeros around their first directions."""
    rest = [(0, 0, 0)] * (images.ndim - 1 - len(pads))
    return lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *pads, *rest])
