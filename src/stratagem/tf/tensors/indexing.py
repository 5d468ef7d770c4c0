"""Parts of tensors: `tf.gather`, `tf.where`, `tf.boolean_mask`, `tf.tensor_scatter_nd_update`, `tf.unique`.

Where the size of a result depends on values (`boolean_mask`, `unique`, `where` with one argument), the values must
be known: not inside a compiled function. Source of the semantics: https://www.tensorflow.org/api_docs/python/tf
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import UsageError
from stratagem.program.tracing import is_traced
from stratagem.tf.derivatives import stitched
from stratagem.tf.tensors.marks import Array, Sizes, Tensor
from stratagem.tf.tensors.operation import (
    held,
    hosted,
    integers,
    is_text,
    operands,
    operation,
    refusal,
    refuse_outside,
    tensor,
    texts,
    xp,
)


def known(value: Any, function: str, instead: str) -> np.ndarray:
    """Return a tensor's values, which a result's size depends on.

    Args:
        value: The tensor.
        function: Which function asks.
        instead: What a compiled function writes instead.

    Raises:
        UsageError: They are not known: the tensor is computed in a compiled function.
    """
    if is_traced(value):
        raise UsageError(
            f"tf.{function} was called in a compiled function on a tensor that is computed there.",
            "The size of its result depends on values, and a compiled function needs all sizes beforehand.",
            instead,
        )
    return np.asarray(value)


def _as_given(values: np.ndarray, like: Any) -> Any:
    return hosted(values) if isinstance(like, np.ndarray) else tensor(values)


@operation
def gather(params: Tensor, indices: Tensor, validate_indices: Any = None, axis: Any = None, batch_dims: int = 0) -> Any:
    """Return the slices at indices (`tf.gather`).

    Args:
        params: The tensor to take from.
        indices: The indices of the slices.
        validate_indices: No effect.
        axis: The axis of the slices; None for the first after the batch axes.
        batch_dims: The number of leading axes that `params` and `indices` have in common.

    Raises:
        InputError: There is no such slice. In a compiled function the result is NaN, or the last slice for integers.

    Example:
        >>> gather([10, 20, 30], [2, 0]).tolist()
        [30, 10]
    """
    batch = int(batch_dims) % max(indices.ndim, 1) if batch_dims else 0
    along = batch if axis is None else int(axis)
    if not -params.ndim <= along < params.ndim:
        raise refusal(
            f"gather was given axis {along} for a tensor of shape {tuple(params.shape)}.", "Correct the axis."
        )
    along %= params.ndim
    refuse_outside(indices, params.shape[along], "indices", f"slices along axis {along}")
    if xp(params, indices) is np and not batch:
        return np.take(params, indices, axis=along)
    if not indices.size:  # JAX would make it of nothing, and no gradient would lead back
        nothing = jax.lax.slice_in_dim(jnp.asarray(params), 0, 0, axis=along)
        return nothing.reshape(*params.shape[:along], *indices.shape[batch:], *params.shape[along + 1 :])
    taken = _over(batch, lambda row, own: jnp.take(row, own, axis=along - batch))
    return taken(jnp.asarray(params), jnp.asarray(indices))


def _over(axes: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that have so many leading axes in common, in place of one of their rows."""
    for _ in builtins.range(axes):
        function = jax.vmap(function)
    return function


@operation
def gather_nd(
    params: Tensor, indices: Tensor, batch_dims: int = 0, name: str | None = None, bad_indices_policy: str = ""
) -> Any:
    """Return the slices at indices of several axes (`tf.gather_nd`).

    Args:
        params: The tensor to take from.
        indices: A tensor of shape (..., n). Each row is an index of the first n axes.
        batch_dims: The number of leading axes that both have in common.
        name: No effect.
        bad_indices_policy: No effect.

    Raises:
        InputError: There is no such element.

    Example:
        >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
        [2, 3]
    """
    _refuse_coordinates(indices, params.shape[int(batch_dims) :])
    if not batch_dims:
        return params[_coordinates(indices)]
    return _over(batch_dims, lambda row, own: row[_coordinates(own)])(jnp.asarray(params), jnp.asarray(indices))


def _refuse_coordinates(places: Any, shape: tuple[int, ...]) -> None:
    if not places.ndim or places.shape[-1] > len(shape):
        raise refusal(
            f"Indices of shape {tuple(places.shape)} were given for a tensor of shape {shape}.",
            "Give indices whose last axis is not longer than the number of axes of the tensor.",
        )
    for axis in builtins.range(places.shape[-1]):
        refuse_outside(places[..., axis], shape[axis], "indices", f"slices along axis {axis}")


def _coordinates(places: Any) -> tuple[Any, ...]:
    return tuple(places[..., i] for i in range(places.shape[-1]))


@operation
def boolean_mask(tensor: Tensor, mask: Tensor, axis: Any = None) -> Any:
    """Return the elements where a mask is true (`tf.boolean_mask`).

    Raises:
        UsageError: A compiled function computes the mask.
        InputError: The mask does not fit the tensor.

    Example:
        >>> boolean_mask([1, 2, 3], [True, False, True]).tolist()
        [1, 3]
    """
    chosen = known(mask, "boolean_mask", "Write tf.where(mask, x, 0), and count with tf.reduce_sum(mask).")
    along = 0 if axis is None else int(axis) % tensor.ndim
    if not chosen.ndim or tensor.shape[along : along + chosen.ndim] != chosen.shape:
        raise refusal(
            f"A mask of shape {chosen.shape} was given for shape {tuple(tensor.shape)}, from axis {along}.",
            "Give a mask with one boolean for each element or row.",
        )
    flat = tensor.reshape(*tensor.shape[:along], -1, *tensor.shape[along + chosen.ndim :])
    return gather(flat, np.flatnonzero(chosen), axis=along)


@operation
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return x where a condition is true and y elsewhere; without x and y, the true places (`tf.where`).

    Args:
        condition: Booleans.
        x: A tensor, or None.
        y: A tensor, or None.

    Returns:
        A tensor; or, without x and y, the indices of the true elements, of shape (n, axes).

    Raises:
        UsageError: A compiled function computes the condition, and x and y are missing.

    Example:
        >>> where([True, False], [1, 2], 0).tolist(), where([False, True]).tolist()
        ([1, 0], [[1]])
    """
    chosen = tensor(condition)
    if is_text(x) or is_text(y):
        return np.where(chosen, texts(x), texts(y)).view(EagerArray)
    if x is None and y is None:
        truth = known(chosen, "where(condition)", "Write tf.where(condition, x, y) with three arguments.")
        return _as_given(np.argwhere(truth).astype(held("int64")), chosen)
    x, y = operands(x, y)
    return xp(chosen, x, y).where(chosen, x, y)


@operation
def slice(input_: Tensor, begin: Any, size: Any) -> Any:
    """Return a part of a tensor (`tf.slice`).

    Args:
        input_: The tensor.
        begin: The first index for each axis; a compiled function may compute it.
        size: The size for each axis; -1 for all that is left.

    Raises:
        InputError: The part does not lie within the tensor.

    Example:
        >>> slice([[1, 2, 3], [4, 5, 6]], [1, 0], [1, 2]).tolist()
        [[4, 5]]
    """
    starts = list(begin) if isinstance(begin, list | tuple) else [begin]
    if any(is_traced(start) for start in starts):
        return jax.lax.dynamic_slice(input_, list(begin), integers(size))
    starts, sizes = integers(begin), integers(size)
    if len(starts) != input_.ndim or len(sizes) != input_.ndim:
        raise refusal(
            f"slice was given {len(starts)} begins and {len(sizes)} sizes for shape {tuple(input_.shape)}.",
            "Give one of each for every axis.",
        )
    stops = [
        have if size == -1 else start + size for start, size, have in zip(starts, sizes, input_.shape, strict=True)
    ]
    if any(not 0 <= start <= stop <= have for start, stop, have in zip(starts, stops, input_.shape, strict=True)):
        raise refusal(
            f"slice was given begin {starts} and size {sizes} for shape {tuple(input_.shape)}.",
            "Correct begin and size: the slice must lie within the tensor.",
        )
    return input_[tuple(builtins.slice(start, stop) for start, stop in zip(starts, stops, strict=True))]


@operation
def strided_slice(
    input_: Tensor,
    begin: Sizes,
    end: Sizes,
    strides: Sizes | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
) -> Any:
    """Return a part of a tensor with steps between elements (`tf.strided_slice`).

    Args:
        input_: The tensor.
        begin: The first index for each axis.
        end: The end index for each axis, which is not included.
        strides: The steps; None for 1.
        begin_mask: One bit for each axis: begin at the first element.
        end_mask: One bit for each axis: end with the last element.
        ellipsis_mask: One bit: this place means all axes that are not named.
        new_axis_mask: Bits: this place is a new axis of size 1.
        shrink_axis_mask: Bits: take one element, and remove the axis.
        var: No effect.

    Raises:
        InputError: A step is 0.
    """
    steps = (1,) * len(begin) if strides is None else strides
    if 0 in steps:
        raise refusal(f"strided_slice was given the steps {steps}.", "Give steps other than 0.")
    key: list[Any] = []
    for place, (start, stop, step) in enumerate(zip(begin, end, steps, strict=True)):
        if ellipsis_mask >> place & 1:
            key.append(Ellipsis)
        elif new_axis_mask >> place & 1:
            key.append(None)
        elif shrink_axis_mask >> place & 1:
            key.append(start)
        else:
            first = None if begin_mask >> place & 1 else start
            key.append(builtins.slice(first, None if end_mask >> place & 1 else stop, step))
    return input_[tuple(key)]


def _scattered(name: str, of: str) -> Callable[..., Any]:
    def function(
        tensor: Array, indices: Array, updates: Array, name: str | None = None, bad_indices_policy: str = ""
    ) -> Any:
        _refuse_coordinates(indices, tensor.shape)
        if updates.shape != (*indices.shape[:-1], *tensor.shape[indices.shape[-1] :]):
            raise refusal(
                f"Updates of shape {updates.shape} were given at indices of shape {indices.shape}, of a tensor of "
                f"shape {tensor.shape}.",
                "Give one update for each index, with the shape of a slice.",
            )
        at = tensor.at[_coordinates(jnp.where(indices < 0, np.iinfo(np.int32).max, indices))]
        return getattr(at, of)(updates.astype(tensor.dtype), mode="drop")

    text = f"""Return a tensor with updates at indices of several axes (`tf.{name}`).

    In a compiled function, updates at indices outside are left out.

    Raises:
        InputError: An index is outside, or the updates have another shape.
    """
    return operation(function, name, text)


tensor_scatter_nd_update = _scattered("tensor_scatter_nd_update", "set")
tensor_scatter_nd_add = _scattered("tensor_scatter_nd_add", "add")
tensor_scatter_nd_max = _scattered("tensor_scatter_nd_max", "max")
tensor_scatter_nd_min = _scattered("tensor_scatter_nd_min", "min")


@operation
def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Array, name: str | None = None, bad_indices_policy: str = ""
) -> Any:
    """Return a tensor minus updates at indices of several axes (`tf.tensor_scatter_nd_sub`)."""
    return tensor_scatter_nd_add(tensor, indices, -updates)


@operation
def scatter_nd(
    indices: Any, updates: Array, shape: Sizes, name: str | None = None, bad_indices_policy: str = ""
) -> Any:
    """Return a tensor of zeros with updates at indices; updates at one place are added up (`tf.scatter_nd`).

    Raises:
        InputError: An index is outside, or the updates have another shape.

    Example:
        >>> scatter_nd([[1], [3], [1]], [9, 5, 1], [5]).tolist()
        [0, 10, 0, 5, 0]
    """
    return tensor_scatter_nd_add(jnp.zeros(shape, updates.dtype), indices, updates)


@operation
def searchsorted(sorted_sequence: Array, values: Array, side: str = "left", out_type: Any = "int32") -> Any:
    """Return the positions of values in ascending sequences (`tf.searchsorted`)."""
    if jnp.issubdtype(values.dtype, jnp.inexact):
        nothing_less = -jnp.inf if side == "left" else jnp.inf
        values = jnp.where(jnp.isnan(values), nothing_less, values)  # no comparison with NaN holds
    found = _over(sorted_sequence.ndim - 1, lambda row, own: jnp.searchsorted(row, own, side=side))
    return found(sorted_sequence, values).astype(held(out_type))


class Unique(NamedTuple):
    """The different elements, and for each element the index of the one that it equals."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """The different elements, for each element the index of the one that it equals, and how often each occurs."""

    y: Any
    idx: Any
    count: Any


def unique_with_counts(x: Any, out_idx: Any = "int32", name: str | None = None) -> UniqueWithCounts:
    """Return the different elements in the order in which they first occur (`tf.unique_with_counts`).

    Raises:
        UsageError: A compiled function computes the tensor.
        InputError: The tensor does not have exactly one axis.

    Example:
        >>> [part.tolist() for part in unique_with_counts([7, 3, 7])]
        [[7, 3], [0, 1, 0], [2, 1]]
    """
    given = tensor(x)
    values = known(given, "unique", "Write keras.ops or jnp.unique(x, size=the greatest possible number).")
    if values.ndim != 1:
        raise refusal(f"unique was given a tensor of shape {values.shape}.", "Write tf.reshape(x, [-1]) first.")
    _, first, inverse, counts = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    order = np.argsort(first)
    rank = np.argsort(order).astype(held(out_idx))
    parts = values[first[order]], rank[inverse], counts[order].astype(held(out_idx))
    return UniqueWithCounts(*(_as_given(part, given) for part in parts))


def unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Unique:
    """Return the different elements in the order in which they first occur (`tf.unique`)."""
    return Unique(*unique_with_counts(x, out_idx)[:2])


@operation
def invert_permutation(x: Tensor) -> Any:
    """Return the permutation that undoes this one (`tf.math.invert_permutation`).

    Raises:
        InputError: The argument is not a permutation.
    """
    if not is_traced(x) and sorted(np.asarray(x).tolist()) != list(builtins.range(x.size)):
        raise refusal(
            f"invert_permutation was given {np.asarray(x).tolist()}.", "Give each number from 0 to n - 1 once."
        )
    return xp(x).argsort(x).astype(x.dtype)


def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Any]:
    """Return a list with the rows of each number (`tf.dynamic_partition`).

    Raises:
        UsageError: A compiled function computes the numbers.
        InputError: A number is outside the range, or there is not one number for each row.
    """
    parts = known(tensor(partitions), "dynamic_partition", "Write tf.where(partitions == i, data, 0) for each part.")
    refuse_outside(parts, num_partitions, "partitions", "parts")
    return [boolean_mask(data, parts == number) for number in range(num_partitions)]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Any:
    """Return rows merged into one tensor: row `indices[m][i]` is `data[m][i]` (`tf.dynamic_stitch`)."""
    places = [np.asarray(tensor(index)).reshape(-1) for index in indices]
    rows = [tensor(part) for part in data]
    flat = [
        row.reshape(len(place), *row.shape[tensor(index).ndim :])
        for place, row, index in zip(places, rows, indices, strict=True)
    ]
    joined = xp(*rows).concatenate(flat, 0)
    order = np.zeros(max(int(place.max()) for place in places if place.size) + 1, np.int32)
    order[np.concatenate(places)] = np.arange(sum(len(place) for place in places))
    if xp(joined) is np:
        return np.take(joined, order, axis=0)
    return stitched(joined, jnp.asarray(order), jnp.asarray(np.concatenate(places)))


@operation
def unravel_index(indices: Tensor, dims: Sizes) -> Any:
    """Return the index along each axis for positions in a flat array, of shape (axes, ...) (`tf.unravel_index`).

    Raises:
        InputError: There is no such position.

    Example:
        >>> unravel_index([5, 2], [2, 3]).tolist()
        [[1, 0], [2, 2]]
    """
    refuse_outside(indices, int(np.prod(dims)), "indices", "elements")
    return xp(indices).stack(xp(indices).unravel_index(indices, dims)).astype(indices.dtype)
