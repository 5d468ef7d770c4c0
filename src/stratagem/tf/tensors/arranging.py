"""Tensors in other shapes and orders: `tf.reshape`, `tf.concat`, `tf.transpose`, `tf.pad`, `tf.sort`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.tf.derivatives import constant
from stratagem.tf.tensors.marks import Array, Axes, Sizes, Tensor
from stratagem.tf.tensors.operation import (
    axes,
    held,
    hosted,
    integers,
    is_text,
    operation,
    refusal,
    refuse_outside,
    tensor,
    xp,
)
from stratagem.tf.tensors.shapes import TensorShape


@operation
def reshape(tensor: Tensor, shape: Sizes) -> Any:
    """Return the same elements in another shape (`tf.reshape`).

    Args:
        tensor: The tensor.
        shape: The new shape; one size may be -1 (or None), and follows from the others.

    Example:
        >>> reshape([[1, 2], [3, 4]], [-1]).tolist()
        [1, 2, 3, 4]
    """
    return xp(tensor).reshape(tensor, shape)


_tensor = tensor


@operation
def expand_dims(input: Tensor, axis: Any) -> Any:
    """Return a tensor with one more axis, of size 1 (`tf.expand_dims`)."""
    return xp(input).expand_dims(input, int(axis))


@operation
def squeeze(input: Tensor, axis: Any = None) -> Any:
    """Return a tensor without its axes of size 1, or without those named (`tf.squeeze`)."""
    return xp(input).squeeze(input, None if axis in (None, []) else axes(axis))


@operation
def transpose(a: Tensor, perm: Sizes | None = None, conjugate: bool = False) -> Any:
    """Return a tensor with its axes in another order (`tf.transpose`); by default in reverse."""
    moved = xp(a).transpose(a, perm)
    return xp(a).conj(moved) if conjugate else moved


@operation
def concat(values: Any, axis: Any) -> Any:
    """Return tensors joined along an axis (`tf.concat`).

    Example:
        >>> concat([[[1, 2]], [[3, 4]]], axis=0).tolist()
        [[1, 2], [3, 4]]
    """
    parts = [tensor(part) for part in (values if isinstance(values, list | tuple) else [values])]
    return xp(*parts).concatenate(parts, int(axis))


@operation
def stack(values: Any, axis: int = 0) -> Any:
    """Return tensors of one shape joined along a new axis (`tf.stack`)."""
    parts = [tensor(part) for part in values]
    return xp(*parts).stack(parts, axis=int(axis))


parallel_stack = stack


@operation
def unstack(value: Tensor, num: int | None = None, axis: int = 0) -> list[Any]:
    """Return the tensors that lie along an axis (`tf.unstack`).

    Raises:
        InputError: There is no such axis, or it does not have `num` elements.
    """
    if not -value.ndim <= axis < value.ndim or num not in (None, value.shape[axis]):
        raise refusal(
            f"unstack was given num={num} and axis {axis} for shape {tuple(value.shape)}.",
            "Correct the axis, or leave num out.",
        )
    return [xp(value).take(value, i, axis=axis) for i in range(value.shape[axis])]


@operation
def split(value: Tensor, num_or_size_splits: Any, axis: int = 0, num: Any = None) -> list[Any]:
    """Return a tensor in parts (`tf.split`).

    Args:
        value: The tensor.
        num_or_size_splits: The number of equal parts, or the sizes of the parts; one size may be -1 for the rest.
        axis: The axis to split.
        num: No effect.

    Raises:
        InputError: The parts do not make up the axis.

    Example:
        >>> [part.tolist() for part in split([1, 2, 3], [1, -1])]
        [[1], [2, 3]]
    """
    length = value.shape[axis]
    if np.ndim(num_or_size_splits) == 0:
        count = int(num_or_size_splits)
        sizes = [length // count] * count
    else:
        sizes = list(integers(num_or_size_splits))
        sizes = [length - sum(sizes) - 1 if size == -1 else size for size in sizes]
    if sum(sizes) != length:
        raise InputError(
            f"split was asked for {num_or_size_splits} of an axis of size {length}.",
            "Give a number that divides the size, or sizes that add up to it.",
        )
    return xp(value).split(value, np.cumsum(sizes)[:-1].tolist(), axis=axis)


@operation
def tile(input: Tensor, multiples: Sizes) -> Any:
    """Return a tensor repeated along each axis (`tf.tile`).

    Raises:
        InputError: The numbers of multiples and axes differ.
    """
    if len(multiples) != input.ndim:
        raise refusal(f"tile was given {len(multiples)} multiples for shape {input.shape}.", "Give one for each axis.")
    return xp(input).tile(input, multiples)


@operation
def repeat(input: Tensor, repeats: Any, axis: Any = None) -> Any:
    """Return a tensor with each element repeated (`tf.repeat`)."""
    counts = np.asarray(repeats)
    along = None if axis is None else int(axis)
    if counts.ndim == 0 or xp(input) is np:
        return xp(input).repeat(input, counts, axis=along)
    return jnp.repeat(input, counts, axis=along, total_repeat_length=int(counts.sum()))


@operation
def broadcast_to(input: Tensor, shape: Sizes) -> Any:
    """Return a tensor repeated along its axes of size 1 to a given shape (`tf.broadcast_to`)."""
    return xp(input).broadcast_to(input, shape)


_MODES: Final = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@operation
def pad(tensor: Tensor, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0) -> Any:
    """Return a tensor with elements added around it (`tf.pad`).

    Args:
        tensor: The tensor.
        paddings: The number of elements to add before and after each axis, of shape (axes, 2).
        mode: "CONSTANT", "REFLECT" or "SYMMETRIC".
        constant_values: The value of the added elements; around text they are empty texts.

    Raises:
        InputError: The paddings do not fit the shape.

    Example:
        >>> pad([[1, 2]], [[0, 0], [1, 2]]).tolist()
        [[0, 1, 2, 0, 0]]
    """
    widths = [(int(before), int(after)) for before, after in np.asarray(paddings).tolist()]
    most = {"CONSTANT": math.inf, "REFLECT": -1, "SYMMETRIC": 0}.get(mode.upper())
    if most is None or len(widths) != tensor.ndim:
        raise refusal(
            f"pad was given {len(widths)} paddings and mode {mode!r} for shape {tuple(tensor.shape)}.",
            "Give a pair for each axis, and CONSTANT, REFLECT or SYMMETRIC.",
        )
    if any(width < 0 or width > size + most for pair, size in zip(widths, tensor.shape, strict=True) for width in pair):
        raise refusal(
            f"pad was asked for {widths} with mode {mode} around shape {tuple(tensor.shape)}.",
            "Give no negative numbers, and for REFLECT and SYMMETRIC no more than the axis has to mirror.",
        )
    if mode.upper() == "CONSTANT":
        nothing = b"" if is_text(tensor) and isinstance(constant_values, int) else constant_values
        return xp(tensor).pad(tensor, widths, constant_values=nothing)
    return xp(tensor).pad(tensor, widths, mode=_MODES[mode.upper()])


@operation
def reverse(tensor: Tensor, axis: Sizes) -> Any:
    """Return a tensor backwards along axes (`tf.reverse`)."""
    return xp(tensor).flip(tensor, axis)


@operation
def roll(input: Tensor, shift: Axes, axis: Axes) -> Any:
    """Return a tensor shifted along axes; elements that leave at one end enter at the other (`tf.roll`)."""
    return xp(input).roll(input, shift, axis)


def _order(x: Any, axis: Any, direction: str) -> Any:
    """Return where the elements stand in order; equal ones keep theirs. NaN comes last where they ascend."""
    if direction not in ("ASCENDING", "DESCENDING") or not -x.ndim <= axis < x.ndim:
        raise refusal(
            f"direction is {direction!r} and axis {axis}, for shape {tuple(x.shape)}.",
            'Write "ASCENDING" or "DESCENDING", and an axis that the tensor has.',
        )
    numpy = xp(x)
    fixed = x if numpy is np else constant(x)
    if direction == "ASCENDING":
        return numpy.argsort(fixed, axis=axis, stable=True).astype(np.int32)
    backwards = numpy.flip(numpy.argsort(numpy.flip(fixed, axis), axis=axis, stable=True), axis)
    return (x.shape[axis] - 1 - backwards).astype(np.int32)


@operation
def sort(values: Tensor, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """Return a tensor in order along an axis (`tf.sort`); `direction` is "ASCENDING" or "DESCENDING".

    NaN comes last in ascending order and first in descending order; TensorFlow does not define its place.

    Raises:
        InputError: There is no such direction or axis.
    """
    return xp(values).take_along_axis(values, _order(values, axis, direction), axis)


@operation
def argsort(values: Tensor, axis: int = -1, direction: str = "ASCENDING", stable: bool = False) -> Any:
    """Return the indices that put a tensor in order along an axis (`tf.argsort`); NaN as in `sort`."""
    return _order(values, axis, direction)


@operation
def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Any]:
    """Return coordinates of the points of a grid (`tf.meshgrid`)."""
    parts = [tensor(part) for part in args]
    return list(xp(*parts).meshgrid(*parts, indexing=indexing))


@operation
def sequence_mask(lengths: Tensor, maxlen: Any = None, dtype: Any = "bool") -> Any:
    """Return for each length a row that is true up to that length and then false (`tf.sequence_mask`).

    Example:
        >>> sequence_mask([1, 3], 3).tolist()
        [[True, False, False], [True, True, True]]
    """
    numpy = xp(lengths)
    longest = int(numpy.max(lengths, initial=0)) if maxlen is None else int(maxlen)
    return (numpy.arange(longest) < numpy.expand_dims(lengths, -1)).astype(held(dtype))


@operation
def reverse_sequence(
    input: Array, seq_lengths: Array, seq_axis: int | None = None, batch_axis: int | None = None
) -> Any:
    """Return sequences with their first elements reversed; `seq_lengths` says how many (`tf.reverse_sequence`).

    Raises:
        InputError: A length is greater than the axis, or the numbers of lengths and sequences differ.
    """
    along, batch = int(seq_axis or 0), int(batch_axis or 0)
    if seq_lengths.shape != (input.shape[batch],):
        raise refusal(f"{seq_lengths.size} lengths were given for shape {input.shape}.", "Give one for each sequence.")
    refuse_outside(seq_lengths, input.shape[along] + 1, "seq_lengths", "lengths from 0 to that of the axis")
    moved = jnp.moveaxis(input, (batch, along), (0, 1))
    steps = jnp.arange(moved.shape[1])
    places = jnp.where(steps < seq_lengths[:, None], seq_lengths[:, None] - 1 - steps, steps)
    return jnp.moveaxis(jax.vmap(lambda row, place: row[place])(moved, places), (0, 1), (batch, along))


def broadcast_static_shape(shape_x: Sequence[int], shape_y: Sequence[int]) -> TensorShape:
    """Return the shape to which two shapes broadcast (`tf.broadcast_static_shape`)."""
    return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Any:
    """Return the shape to which two shapes broadcast, as a tensor (`tf.broadcast_dynamic_shape`)."""
    return hosted(np.asarray(np.broadcast_shapes(integers(shape_x), integers(shape_y)), np.int32))


@operation
def space_to_depth(input: Tensor, block_size: int, data_format: str = "NHWC") -> Any:
    """Return images with blocks of pixels as channels (`tf.nn.space_to_depth`)."""
    n, h, w, c = input.shape
    blocks = input.reshape(n, h // block_size, block_size, w // block_size, block_size, c)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block_size, w // block_size, block_size**2 * c)


@operation
def depth_to_space(input: Tensor, block_size: int, data_format: str = "NHWC") -> Any:
    """Return images with channels as blocks of pixels (`tf.nn.depth_to_space`)."""
    n, h, w, c = input.shape
    blocks = input.reshape(n, h, w, block_size, block_size, c // block_size**2)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * block_size, w * block_size, c // block_size**2)


def _blocks(block_shape: Any) -> list[int]:
    return np.atleast_1d(np.asarray(block_shape)).tolist()


@operation
def space_to_batch(input: Tensor, block_shape: Any, paddings: Any) -> Any:
    """Return images with blocks of pixels as more rows (`tf.space_to_batch`, `tf.nn.space_to_batch`).

    Args:
        input: A tensor of shape (rows, ..., channels).
        block_shape: The size of the blocks along the axes after the first.
        paddings: The number of zeros before and after each of these axes.

    Raises:
        InputError: The blocks do not make up the images.
    """
    blocks, pairs = _blocks(block_shape), np.asarray(paddings).reshape(-1, 2).tolist()
    rest = input.ndim - 1 - len(blocks)
    input = xp(input).pad(input, [(0, 0), *pairs, *[(0, 0)] * rest])
    sizes = input.shape[1 : 1 + len(blocks)]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        raise refusal(
            f"Blocks of {blocks} were asked for, but the images have the size {sizes}.",
            "Pad the images to whole blocks.",
        )
    split = [part for size, block in zip(sizes, blocks, strict=True) for part in (size // block, block)]
    apart = input.reshape(input.shape[0], *split, *input.shape[1 + len(blocks) :])
    order = [*range(2, 2 + 2 * len(blocks), 2), 0, *range(1, 1 + 2 * len(blocks), 2)]
    moved = apart.transpose(*order, *range(len(order), apart.ndim))
    return moved.reshape(-1, *(s // b for s, b in zip(sizes, blocks, strict=True)), *input.shape[1 + len(blocks) :])


space_to_batch_nd = space_to_batch


@operation
def batch_to_space(input: Tensor, block_shape: Any, crops: Any) -> Any:
    """Return images with rows as blocks of pixels (`tf.batch_to_space`): the reverse of `space_to_batch`.

    Args:
        input: A tensor of shape (rows, ..., channels).
        block_shape: The size of the blocks along the axes after the first.
        crops: The number of pixels to remove before and after each of these axes.

    Raises:
        InputError: The number of rows is not a multiple of the size of the blocks.
    """
    blocks, pairs = _blocks(block_shape), np.asarray(crops).reshape(-1, 2).tolist()
    count, together = len(blocks), int(np.prod(blocks))
    if input.shape[0] % together:
        raise refusal(
            f"Blocks of {blocks} were asked for, but there are {input.shape[0]} rows.",
            f"Give a multiple of {together} rows.",
        )
    apart = input.reshape(*blocks, input.shape[0] // together, *input.shape[1:])
    order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
    moved = apart.transpose(*order, *range(2 * count + 1, apart.ndim))
    sizes = [size * block for size, block in zip(input.shape[1 : 1 + count], blocks, strict=True)]
    whole = moved.reshape(input.shape[0] // together, *sizes, *input.shape[1 + count :])
    cut = (slice(first, size - last) for (first, last), size in zip(pairs, sizes, strict=True))
    return whole[(slice(None), *cut)]
