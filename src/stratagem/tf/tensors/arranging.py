"""Tensors in other shapes and orders: `tf.reshape`, `tf.concat`, `tf.transpose`, `tf.pad`, `tf.sort`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.tf.tensors.operation import axes, held, integers, operation, tensor, xp


@operation
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Return the same elements in another shape (`tf.reshape`).

    Args:
        tensor: The tensor.
        shape: The new shape; one size may be -1 (or None) for what is left.
        name: No effect.

    Example:
        >>> reshape([[1, 2], [3, 4]], [-1]).tolist()
        [1, 2, 3, 4]
    """
    x = _tensor(tensor)
    return xp(x).reshape(x, integers(shape))


_tensor = tensor


@operation
def expand_dims(input: Any, axis: Any, name: str | None = None) -> Any:
    """Return a tensor with one more axis, of size 1 (`tf.expand_dims`)."""
    x = tensor(input)
    return xp(x).expand_dims(x, int(axis))


@operation
def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return a tensor without its axes of size 1, or without those named (`tf.squeeze`)."""
    x = tensor(input)
    return xp(x).squeeze(x, None if axis in (None, []) else axes(axis))


@operation
def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str = "transpose") -> Any:
    """Return a tensor with its axes in another order (`tf.transpose`); without one, backwards."""
    x = tensor(a)
    moved = xp(x).transpose(x, None if perm is None else integers(perm))
    return xp(x).conj(moved) if conjugate else moved


@operation
def concat(values: Any, axis: Any, name: str = "concat") -> Any:
    """Return tensors joined along an axis (`tf.concat`).

    Example:
        >>> concat([[[1, 2]], [[3, 4]]], axis=0).tolist()
        [[1, 2], [3, 4]]
    """
    parts = [tensor(part) for part in (values if isinstance(values, list | tuple) else [values])]
    return xp(*parts).concatenate(parts, int(axis))


@operation
def stack(values: Any, axis: int = 0, name: str = "stack") -> Any:
    """Return tensors of one shape joined along a new axis (`tf.stack`)."""
    parts = [tensor(part) for part in values]
    return xp(*parts).stack(parts, axis=int(axis))


parallel_stack = stack


@operation
def unstack(value: Any, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Any]:
    """Return the tensors that lie along an axis (`tf.unstack`)."""
    x = tensor(value)
    return [xp(x).take(x, i, axis=axis) for i in range(x.shape[axis])]


@operation
def split(value: Any, num_or_size_splits: Any, axis: int = 0, num: Any = None, name: str = "split") -> list[Any]:
    """Return a tensor in parts (`tf.split`).

    Args:
        value: The tensor.
        num_or_size_splits: How many equal parts, or the sizes of the parts; one may be -1 for what is left.
        axis: Along which axis.
        num: No effect.
        name: No effect.

    Raises:
        InputError: The parts do not make up the axis.

    Example:
        >>> [part.tolist() for part in split([1, 2, 3], [1, -1])]
        [[1], [2, 3]]
    """
    x = tensor(value)
    length = x.shape[axis]
    if np.ndim(num_or_size_splits) == 0:
        count = int(num_or_size_splits)
        sizes = [length // count] * count
    else:
        sizes = list(integers(num_or_size_splits))
        sizes = [length - sum(sizes) - 1 if size == -1 else size for size in sizes]
    if sum(sizes) != length:
        raise InputError(
            explain(
                f"split was asked for {num_or_size_splits} of an axis of size {length}.",
                "The parts would not make up the whole.",
                "Give a number that divides the size, or sizes that add up to it.",
            )
        )
    return xp(x).split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis)


@operation
def tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    """Return a tensor repeated along each axis (`tf.tile`)."""
    x = tensor(input)
    return xp(x).tile(x, integers(multiples))


@operation
def repeat(input: Any, repeats: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return a tensor with each element repeated (`tf.repeat`)."""
    x = tensor(input)
    counts = np.asarray(repeats)
    along = None if axis is None else int(axis)
    if counts.ndim == 0 or xp(x) is np:
        return xp(x).repeat(x, counts, axis=along)
    return jnp.repeat(x, counts, axis=along, total_repeat_length=int(counts.sum()))


@operation
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Return a tensor repeated along its axes of size 1, to this shape (`tf.broadcast_to`)."""
    x = tensor(input)
    return xp(x).broadcast_to(x, integers(shape))


_MODES: Final = {"CONSTANT": "constant", "REFLECT": "reflect", "SYMMETRIC": "symmetric"}


@operation
def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    """Return a tensor with more around it (`tf.pad`).

    Args:
        tensor: The tensor.
        paddings: For each axis how many before and after, of shape (axes, 2).
        mode: "CONSTANT", "REFLECT" or "SYMMETRIC".
        constant_values: What to put there.
        name: No effect.

    Example:
        >>> pad([[1, 2]], [[0, 0], [1, 2]]).tolist()
        [[0, 1, 2, 0, 0]]
    """
    x = _tensor(tensor)
    widths = [tuple(int(width) for width in pair) for pair in paddings]
    if mode.upper() == "CONSTANT":
        return xp(x).pad(x, widths, constant_values=constant_values)
    return xp(x).pad(x, widths, mode=_MODES[mode.upper()])


@operation
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    """Return a tensor backwards along axes (`tf.reverse`)."""
    x = _tensor(tensor)
    return xp(x).flip(x, integers(axis))


@operation
def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    """Return a tensor moved along axes, what falls off coming in again (`tf.roll`)."""
    x = tensor(input)
    return xp(x).roll(x, axes(shift), axes(axis))


@operation
def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Any:
    """Return a tensor in order along an axis (`tf.sort`); `direction` is "ASCENDING" or "DESCENDING"."""
    x = tensor(values)
    ordered = xp(x).sort(x, axis=axis)
    return xp(x).flip(ordered, axis) if direction == "DESCENDING" else ordered


@operation
def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Any:
    """Return the indices that put a tensor in order along an axis (`tf.argsort`)."""
    x = tensor(values)
    numpy = xp(x)
    if direction != "DESCENDING":
        return numpy.argsort(x, axis=axis, stable=True).astype(np.int32)
    backwards = numpy.flip(numpy.argsort(numpy.flip(x, axis), axis=axis, stable=True), axis)
    return (x.shape[axis] - 1 - backwards).astype(np.int32)  # equal elements keep their order


@operation
def meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> list[Any]:
    """Return coordinates of the points of a grid (`tf.meshgrid`)."""
    parts = [tensor(part) for part in args]
    return list(xp(*parts).meshgrid(*parts, indexing=indexing))


@operation
def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = "bool", name: str | None = None) -> Any:
    """Return, for each length, true that many times and then false (`tf.sequence_mask`).

    Example:
        >>> sequence_mask([1, 3], 3).tolist()
        [[True, False, False], [True, True, True]]
    """
    x = tensor(lengths)
    numpy = xp(x)
    longest = int(x.max()) if maxlen is None else int(maxlen)
    return (numpy.arange(longest) < numpy.expand_dims(x, -1)).astype(held(dtype))


@operation
def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int | None = None, name: str | None = None
) -> Any:
    """Return sequences with their first elements backwards, as many as their lengths tell (`tf.reverse_sequence`)."""
    x, lengths = jnp.asarray(tensor(input)), jnp.asarray(tensor(seq_lengths))
    along, batch = int(seq_axis or 0), int(batch_axis or 0)
    moved = jnp.moveaxis(x, (batch, along), (0, 1))
    steps = jnp.arange(moved.shape[1])
    places = jnp.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    return jnp.moveaxis(jax.vmap(lambda row, place: row[place])(moved, places), (0, 1), (batch, along))


def broadcast_static_shape(shape_x: Sequence[int], shape_y: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that two shapes give together (`tf.broadcast_static_shape`)."""
    return np.broadcast_shapes(tuple(shape_x), tuple(shape_y))


broadcast_dynamic_shape = broadcast_static_shape


@operation
def space_to_depth(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Any:
    """Return images with blocks of pixels as channels (`tf.nn.space_to_depth`)."""
    x = tensor(input)
    n, h, w, c = x.shape
    blocks = x.reshape(n, h // block_size, block_size, w // block_size, block_size, c)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block_size, w // block_size, block_size**2 * c)


@operation
def depth_to_space(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Any:
    """Return images with channels as blocks of pixels (`tf.nn.depth_to_space`)."""
    x = tensor(input)
    n, h, w, c = x.shape
    blocks = x.reshape(n, h, w, block_size, block_size, c // block_size**2)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * block_size, w * block_size, c // block_size**2)
