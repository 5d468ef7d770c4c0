"""`tf.sparse`: what moves the values of sparse tensors, text too, and computes nothing of them.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/sparse
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.data.ragged_making import eager
from stratagem.data.sparse import SparseTensor, common_library, flat_places, known_part, picked, places_of, reorder
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.marks import Axes, Sizes
from stratagem.tf.tensors.operation import hosted, operation, refusal, refuse_outside
from stratagem.tf.tensors.sparse import sparse


@operation
def eye(num_rows: Any, num_columns: Any = None, dtype: Any = "float32") -> SparseTensor:
    """Return a sparse matrix with ones on its diagonal (`tf.sparse.eye`).

    Args:
        num_rows: The number of rows.
        num_columns: The number of columns; None for as many as rows.
        dtype: The dtype of the ones.

    Example:
        >>> eye(2).dense().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows, columns = int(num_rows), int(num_rows if num_columns is None else num_columns)
    places = np.arange(min(rows, columns))
    kind = as_dtype(dtype)
    if kind == "string":
        raise refusal("tf.sparse.eye was given dtype string.", "Give a dtype of numbers.")
    ones = np.ones(len(places), kind.as_numpy_dtype)
    return SparseTensor(np.stack([places, places], axis=1), ones, [rows, columns])


@operation
def concat(axis: Any, sp_inputs: Sequence[Any], expand_nonconcat_dims: bool = False, name: Any = None) -> SparseTensor:
    """Return sparse tensors joined along an axis (`tf.sparse.concat`).

    Args:
        axis: The axis.
        sp_inputs: The sparse tensors.
        expand_nonconcat_dims: Whether the other sizes may differ. The result has the greatest of them.
        name: Accepted as in TensorFlow.

    Returns:
        A sparse tensor with its values in the order of rows; or the tensor itself, if only one is given.

    Raises:
        InputError: The other sizes differ, or there is no such axis; or, in a compiled function, sizes are not known.

    Example:
        >>> one = SparseTensor([[0, 1]], [5], [1, 2])
        >>> concat(1, [one, one]).dense().tolist()
        [[0, 5, 0, 5]]
    """
    what = "tf.sparse.concat"
    parts = [sparse(part, what) for part in ([sp_inputs] if isinstance(sp_inputs, SparseTensor) else sp_inputs)]
    if len(parts) == 1:
        return parts[0]
    shapes = [part.sizes(what) for part in parts]
    rank, axis = len(shapes[0]), int(axis)
    others = {(*shape[: axis % rank], *shape[axis % rank + 1 :]) for shape in shapes} if rank else set()
    fits = len(others) == 1 or (expand_nonconcat_dims and len(set(map(len, shapes))) == 1)
    if not -rank <= axis < rank or not fits:
        raise refusal(
            f"{what} was given sparse tensors of shapes {' and '.join(map(str, shapes))}, and axis={axis}.",
            "Give an axis that all of them have, and expand_nonconcat_dims=True where their other sizes differ.",
            "The shape of the result would not be known.",
        )
    axis %= rank
    sizes = np.max(shapes, axis=0)
    sizes[axis] = sum(shape[axis] for shape in shapes)
    indices = [places_of(part, what) for part in parts]
    starts = np.cumsum([0, *(shape[axis] for shape in shapes)])
    moved = [each + np.eye(rank, dtype=each.dtype)[axis] * first for each, first in zip(indices, starts, strict=False)]
    values = [part.values for part in parts]
    numpy, own = common_library(*moved), common_library(*values)
    joined = own.concatenate([own.asarray(each) for each in values])
    return reorder(SparseTensor(numpy.concatenate([numpy.asarray(each) for each in moved]), joined, sizes))


@operation
def transpose(sp_input: Any, perm: Axes = None) -> SparseTensor:
    """Return a sparse tensor with its axes in another order, and values in the order of rows (`tf.sparse.transpose`).

    Args:
        sp_input: The sparse tensor.
        perm: The old axis for each axis of the result; None for the reverse order.

    Raises:
        InputError: `perm` does not contain each axis once.

    Example:
        >>> transpose(SparseTensor([[0, 2]], [5], [2, 3])).indices.tolist()
        [[2, 0]]
    """
    given = sparse(sp_input, "tf.sparse.transpose")
    rank = given.indices.shape[1]
    order = [*range(rank)][::-1] if perm is None else np.atleast_1d(np.asarray(perm)).tolist()
    if sorted(each % rank for each in order) != [*range(rank)]:
        raise refusal(
            f"tf.sparse.transpose of a SparseTensor of {rank} axes was given perm={perm}.",
            "Name each axis once.",
            "Values from different places would lie at one place.",
        )
    order = [each % rank for each in order]
    return reorder(SparseTensor.of_parts(given.indices[:, order], given.values, given.dense_shape[np.array(order)]))


@operation
def expand_dims(sp_input: Any, axis: Any = None) -> SparseTensor:
    """Return a sparse tensor with one more axis, of size 1 (`tf.sparse.expand_dims`).

    Args:
        sp_input: The sparse tensor.
        axis: The place of the new axis; None for the last.

    Raises:
        InputError: The axis cannot be at this place.

    Example:
        >>> expand_dims(SparseTensor([[0, 2]], [5], [2, 3]), 0).shape
        (1, 2, 3)
    """
    given = sparse(sp_input, "tf.sparse.expand_dims")
    rank = given.indices.shape[1]
    place = -1 if axis is None else int(axis)
    if not -rank - 1 <= place <= rank:
        raise refusal(
            f"tf.sparse.expand_dims was given axis={axis} and a tensor of {rank} axes.",
            "Give an axis from 0 to the rank.",
        )
    place %= rank + 1
    columns, sizes = common_library(given.indices), common_library(given.dense_shape)
    return SparseTensor(
        columns.insert(given.indices, place, 0, axis=1), given.values, sizes.insert(given.dense_shape, place, 1)
    )


@operation
def reshape(sp_input: Any, shape: Sizes) -> SparseTensor:
    """Return a sparse tensor with the same elements, including zeros, in another shape (`tf.sparse.reshape`).

    Args:
        sp_input: The sparse tensor. Its values keep their order.
        shape: The shape; one size may be -1, which follows from the others.

    Raises:
        InputError: The shape has another number of elements; or, in a compiled function, sizes are not known.

    Example:
        >>> reshape(SparseTensor([[0, 2], [1, 0]], [5, 6], [2, 3]), [3, -1]).indices.tolist()
        [[1, 0], [1, 1]]
    """
    what = "tf.sparse.reshape"
    given = sparse(sp_input, what)
    old, wanted = given.sizes(what), [int(size) for size in shape]
    rest = math.prod(size for size in wanted if size != -1)
    new = [math.prod(old) // max(rest, 1) if size == -1 else size for size in wanted]
    if wanted.count(-1) > 1 or math.prod(new) != math.prod(old):
        raise refusal(
            f"{what} of a SparseTensor of shape {old} was given shape {wanted}.",
            "Give a shape with as many elements, counting zeros, and -1 for at most one size.",
        )
    flat = flat_places(places_of(given, what), old)
    steps = [math.prod(new[place + 1 :]) for place in range(len(new))]
    columns = [flat // max(step, 1) % max(size, 1) for step, size in zip(steps, new, strict=True)]
    indices = common_library(flat).stack(columns, axis=1) if columns else np.zeros((len(given.values), 0), np.int64)
    return SparseTensor(indices, given.values, new)


@operation
def reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Return a sparse tensor of another shape, its values at the same indices (`tf.sparse.reset_shape`).

    Args:
        sp_input: The sparse tensor.
        new_shape: A shape with sizes that are not smaller; None for the smallest shape that holds all values.

    Raises:
        InputError: A size is smaller, or the number of sizes differs.

    Example:
        >>> reset_shape(SparseTensor([[0, 2]], [5], [9, 9])).shape
        (1, 3)
    """
    what = "tf.sparse.reset_shape"
    given = sparse(sp_input, what)
    if new_shape is None:
        indices = given.places(what)
        return SparseTensor(given.indices, given.values, np.max(indices, axis=0, initial=-1) + 1)
    old, new = given.sizes(what), [int(size) for size in np.asarray(new_shape)]
    if len(new) != len(old) or any(size < own for size, own in zip(new, old, strict=True)):
        raise refusal(
            f"{what} of a SparseTensor of shape {old} was given new_shape={new}.",
            "Give as many sizes, none of them smaller; or None for the smallest shape that holds all values.",
        )
    return SparseTensor(given.indices, given.values, new)


@operation
def retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Return a sparse tensor with some of its values (`tf.sparse.retain`).

    Args:
        sp_input: The sparse tensor.
        to_retain: Whether to keep each value.

    Raises:
        InputError: The numbers of booleans and values differ; or a compiled function computes the booleans.

    Example:
        >>> retain(SparseTensor([[0], [1]], [5, 6], [3]), [False, True]).values.tolist()
        [6]
    """
    given = sparse(sp_input, "tf.sparse.retain")
    stays = known_part(eager(to_retain), "tf.sparse.retain", "the booleans in to_retain")
    if stays.shape != given.values.shape or stays.dtype != np.bool_:
        raise refusal(
            f"tf.sparse.retain was given {stays.dtype} of shape {stays.shape} for {given.values.shape[0]} values.",
            "Give one boolean for each value.",
        )
    return _picked(given, np.flatnonzero(stays))


def _picked(given: SparseTensor, places: np.ndarray, first: Any = 0, sizes: Any = None) -> SparseTensor:
    """Return the values with these numbers; their indices count from `first`, in another shape if one is given."""
    indices = picked(given.indices, places) - first
    return SparseTensor(indices, picked(given.values, places), given.dense_shape if sizes is None else sizes)


def _within(given: SparseTensor, what: str, first: np.ndarray, sizes: np.ndarray) -> SparseTensor:
    indices = given.places(what)
    inside = ((indices >= first) & (indices < first + sizes)).all(axis=1)
    return _picked(given, np.flatnonzero(inside), first, sizes)


@operation
def slice(sp_input: Any, start: Sizes, size: Sizes) -> SparseTensor:
    """Return a part of a sparse tensor (`tf.sparse.slice`).

    Args:
        sp_input: The sparse tensor.
        start: The beginning of the part along each axis.
        size: The size of the part along each axis. The part is cut off at the end of the tensor.

    Raises:
        InputError: A size is negative, or the numbers of sizes and axes differ; or, in a compiled function, the indices
            are not known.

    Example:
        >>> slice(SparseTensor([[0, 2], [1, 0]], [5, 6], [2, 3]), [0, 1], [2, 2]).dense().tolist()
        [[0, 5], [0, 0]]
    """
    what = "tf.sparse.slice"
    given = sparse(sp_input, what)
    sizes, first, wanted = np.array(given.sizes(what)), np.array(start, np.int64), np.array(size, np.int64)
    if first.shape != sizes.shape or wanted.shape != sizes.shape or (wanted < 0).any():
        raise refusal(
            f"{what} of a SparseTensor of shape {tuple(sizes.tolist())} was given start={first.tolist()} and "
            f"size={wanted.tolist()}.",
            "Give a start and a size for each axis; a size that is too large is cut off at the end of the tensor.",
        )
    return _within(given, what, first, np.clip(wanted, 0, np.maximum(sizes - first, 0)))


@operation
def split(sp_input: Any = None, num_split: Any = None, axis: Any = None) -> list[SparseTensor]:
    """Return a sparse tensor in parts along an axis (`tf.sparse.split`).

    Args:
        sp_input: The sparse tensor.
        num_split: The number of parts. The first ones are longer by one if the size is not a multiple of it.
        axis: The axis.

    Raises:
        InputError: There is no such axis, or it has fewer elements than parts; or, in a compiled function, the indices
            are not known.

    Example:
        >>> [part.shape for part in split(SparseTensor([[0, 2]], [5], [2, 3]), num_split=2, axis=1)]
        [(2, 2), (2, 1)]
    """
    what = "tf.sparse.split"
    given = sparse(sp_input, what)
    sizes = given.sizes(what)
    count, along = (-1 if each is None else int(each) for each in (num_split, axis))
    if axis is None or not -len(sizes) <= along < len(sizes) or not 1 <= count <= sizes[along]:
        raise refusal(
            f"{what} of a SparseTensor of shape {sizes} was given num_split={num_split} and axis={axis}.",
            "Give an axis that the tensor has, and no more parts than the axis has elements.",
        )
    along %= len(sizes)
    parts, first = [], 0
    for number in range(count):
        length = sizes[along] // count + (number < sizes[along] % count)
        starts, lengths = np.zeros(len(sizes), np.int64), np.array(sizes)
        starts[along], lengths[along] = first, length
        parts.append(_within(given, what, starts, lengths))
        first += length
    return parts


@operation
def fill_empty_rows(sp_input: Any, default_value: Any) -> tuple[SparseTensor, Any]:
    """Return a sparse tensor that has a value in each row (`tf.sparse.fill_empty_rows`).

    Args:
        sp_input: The sparse tensor.
        default_value: The value that a row without values gets, at its beginning.

    Returns:
        The sparse tensor with its values in the order of rows, and for each row whether it had no value.

    Raises:
        InputError: In a compiled function, the indices are not known.

    Example:
        >>> filled, was_empty = fill_empty_rows(SparseTensor([[1, 2]], [5], [2, 3]), 7)
        >>> filled.values.tolist(), was_empty.tolist()
        ([7, 5], [True, False])
    """
    what = "tf.sparse.fill_empty_rows"
    given = sparse(sp_input, what)
    indices, rows = given.places(what), given.sizes(what)[0]
    empty = np.bincount(indices[:, 0], minlength=rows) == 0
    added = np.zeros((int(empty.sum()), indices.shape[1]), np.int64)
    added[:, 0] = np.flatnonzero(empty)
    numpy = common_library(given.values, eager(default_value))
    filling = numpy.broadcast_to(numpy.asarray(eager(default_value)).astype(given.dtype), (len(added),))
    order = np.argsort(np.concatenate([indices[:, 0], added[:, 0]]), kind="stable")
    values = numpy.concatenate([numpy.asarray(given.values), filling])
    return SparseTensor(np.concatenate([indices, added])[order], values[order], given.dense_shape), hosted(empty)


@operation
def to_indicator(sp_input: Any, vocab_size: Any) -> Any:
    """Return which whole numbers are among the values of each row (`tf.sparse.to_indicator`).

    Args:
        sp_input: A sparse tensor of whole numbers from 0. The result does not keep its last axis.
        vocab_size: The greatest possible number, plus 1.

    Returns:
        A dense tensor of booleans, whose last axis has `vocab_size` elements.

    Raises:
        InputError: A number is outside this range; or, in a compiled function, the shape is not known.

    Example:
        >>> to_indicator(SparseTensor([[0, 0], [0, 1]], [2, 0], [2, 2]), 3).tolist()
        [[True, False, True], [False, False, False]]
    """
    what = "tf.sparse.to_indicator"
    given, count = sparse(sp_input, what), int(vocab_size)
    sizes, indices, numbers = given.sizes(what), places_of(given, what), given.values
    refuse_outside(numbers, count, f"The values given to {what}", "numbers in vocab_size")
    truths: Any = np.zeros((*sizes[:-1], count), np.bool_)
    numpy = common_library(indices, numbers)
    at = (*(indices[:, place] for place in builtins.range(len(sizes) - 1)), numbers.astype(np.int32))
    if numpy is not np:
        return numpy.asarray(truths).at[at].set(True)
    truths[at] = True
    return hosted(truths)
