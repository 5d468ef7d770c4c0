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

from stratagem.core.errors import UsageError, explain
from stratagem.replica.tracing import is_traced
from stratagem.tf.tensors.operation import held, hosted, integers, operands, operation, tensor, xp


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
            explain(
                f"tf.{function} was called in a compiled function on a tensor that is computed there.",
                "The size of its result depends on values, and a compiled function needs all sizes beforehand.",
                instead,
            )
        )
    return np.asarray(value)


def _as_given(values: np.ndarray, like: Any) -> Any:
    return hosted(values) if isinstance(like, np.ndarray) else tensor(values)


@operation
def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Any:
    """Return the slices that stand at indices (`tf.gather`).

    Args:
        params: The tensor to take from.
        indices: Which slices.
        validate_indices: No effect.
        axis: Along which axis; None for the first after those of the batch.
        batch_dims: How many leading axes `params` and `indices` have in common.
        name: No effect.

    Example:
        >>> gather([10, 20, 30], [2, 0]).tolist()
        [30, 10]
    """
    x, places = tensor(params), tensor(indices)
    along = batch_dims if axis is None else int(axis) % x.ndim
    if not batch_dims:
        return xp(x, places).take(x, places, axis=along)
    taken: Callable[..., Any] = lambda row, own: jnp.take(row, own, axis=along - batch_dims)  # noqa: E731
    for _ in range(batch_dims):
        taken = jax.vmap(taken)
    return taken(jnp.asarray(x), jnp.asarray(places))


@operation
def gather_nd(params: Any, indices: Any, batch_dims: int = 0, name: str | None = None) -> Any:
    """Return the slices that stand at indices of several axes (`tf.gather_nd`).

    Args:
        params: The tensor to take from.
        indices: Shape (..., n): each row an index of the first n axes.
        batch_dims: How many leading axes both have in common.
        name: No effect.

    Example:
        >>> gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]).tolist()
        [2, 3]
    """
    x, places = tensor(params), tensor(indices)
    if not batch_dims:
        return x[_coordinates(places)]
    taken: Callable[..., Any] = lambda row, own: row[_coordinates(own)]  # noqa: E731
    for _ in range(batch_dims):
        taken = jax.vmap(taken)
    return taken(jnp.asarray(x), jnp.asarray(places))


def _coordinates(places: Any) -> tuple[Any, ...]:
    return tuple(places[..., i] for i in range(places.shape[-1]))


@operation
def boolean_mask(tensor: Any, mask: Any, axis: Any = None, name: str = "boolean_mask") -> Any:
    """Return the elements where a mask is true (`tf.boolean_mask`).

    Raises:
        UsageError: The mask is computed in a compiled function.

    Example:
        >>> boolean_mask([1, 2, 3], [True, False, True]).tolist()
        [1, 3]
    """
    x = _tensor(tensor)
    chosen = known(_tensor(mask), "boolean_mask", "Write tf.where(mask, x, 0), and count with tf.reduce_sum(mask).")
    along = 0 if axis is None else int(axis) % x.ndim
    flat = x.reshape(*x.shape[:along], -1, *x.shape[along + chosen.ndim :])
    return xp(x).take(flat, np.flatnonzero(chosen), axis=along)


_tensor = tensor


@operation
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Return x where a condition is true and y elsewhere; without them, where it is true (`tf.where`).

    Args:
        condition: Booleans.
        x: A tensor, or None.
        y: A tensor, or None.
        name: No effect.

    Returns:
        A tensor; of the condition alone, the indices of its true elements, of shape (n, axes).

    Raises:
        UsageError: The condition stands alone and is computed in a compiled function.

    Example:
        >>> where([True, False], [1, 2], 0).tolist(), where([False, True]).tolist()
        ([1, 0], [[1]])
    """
    chosen = tensor(condition)
    if x is None and y is None:
        truth = known(chosen, "where(condition)", "Write tf.where(condition, x, y) with three arguments.")
        return _as_given(np.argwhere(truth).astype(held("int64")), chosen)
    x, y = operands(x, y)
    return xp(chosen, x, y).where(chosen, x, y)


@operation
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    """Return a part of a tensor (`tf.slice`).

    Args:
        input_: The tensor.
        begin: Where it begins, for each axis; may be computed.
        size: How long it is, for each axis; -1 for all that is left.
        name: No effect.

    Example:
        >>> slice([[1, 2, 3], [4, 5, 6]], [1, 0], [1, 2]).tolist()
        [[4, 5]]
    """
    x = tensor(input_)
    starts = list(begin) if isinstance(begin, list | tuple) else [begin]
    if any(is_traced(start) for start in starts):
        return jax.lax.dynamic_slice(x, list(begin), integers(size))
    starts, sizes = integers(begin), integers(size)
    stops = [None if size == -1 else start + size for start, size in zip(starts, sizes, strict=True)]
    return x[tuple(builtins.slice(start, stop) for start, stop in zip(starts, stops, strict=True))]


@operation
def strided_slice(input_: Any, begin: Any, end: Any, strides: Any = None, name: str | None = None) -> Any:
    """Return a part of a tensor, with steps (`tf.strided_slice`)."""
    steps = [1] * len(begin) if strides is None else integers(strides)
    parts = zip(integers(begin), integers(end), steps, strict=True)
    return tensor(input_)[tuple(builtins.slice(start, stop, step) for start, stop, step in parts)]


def _scattered(name: str, of: str) -> Callable[..., Any]:
    def function(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
        x = jnp.asarray(_tensor(tensor))
        at = x.at[_coordinates(jnp.asarray(_tensor(indices)))]
        return getattr(at, of)(jnp.asarray(_tensor(updates), x.dtype))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return a tensor with updates at indices of several axes (`tf.{name}`)."
    return operation(function)


tensor_scatter_nd_update = _scattered("tensor_scatter_nd_update", "set")
tensor_scatter_nd_add = _scattered("tensor_scatter_nd_add", "add")
tensor_scatter_nd_max = _scattered("tensor_scatter_nd_max", "max")
tensor_scatter_nd_min = _scattered("tensor_scatter_nd_min", "min")


@operation
def tensor_scatter_nd_sub(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """Return a tensor less updates at indices of several axes (`tf.tensor_scatter_nd_sub`)."""
    return tensor_scatter_nd_add(tensor, indices, -jnp.asarray(_tensor(updates)))


@operation
def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Any:
    """Return updates at indices among zeros; those at one place are added up (`tf.scatter_nd`).

    Example:
        >>> scatter_nd([[1], [3], [1]], [9, 5, 1], [5]).tolist()
        [0, 10, 0, 5, 0]
    """
    values = jnp.asarray(_tensor(updates))
    return tensor_scatter_nd_add(jnp.zeros(integers(shape), values.dtype), indices, values)


@operation
def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = "int32", name: str | None = None
) -> Any:
    """Return where values would stand in ascending sequences (`tf.searchsorted`)."""
    rows, wanted = jnp.asarray(tensor(sorted_sequence)), jnp.asarray(tensor(values))
    found: Callable[..., Any] = lambda row, own: jnp.searchsorted(row, own, side=side)  # noqa: E731
    for _ in range(rows.ndim - 1):
        found = jax.vmap(found)
    return found(rows, wanted).astype(held(out_type))


class Unique(NamedTuple):
    """The different elements, and for each element which of them it is."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """The different elements, for each element which of them it is, and how often each occurs."""

    y: Any
    idx: Any
    count: Any


def unique_with_counts(x: Any, out_idx: Any = "int32", name: str | None = None) -> UniqueWithCounts:
    """Return the different elements in the order in which they first occur (`tf.unique_with_counts`).

    Raises:
        UsageError: The tensor is computed in a compiled function.

    Example:
        >>> [part.tolist() for part in unique_with_counts([7, 3, 7])]
        [[7, 3], [0, 1, 0], [2, 1]]
    """
    given = tensor(x)
    values = known(given, "unique", "Write keras.ops or jnp.unique(x, size=the most there can be).")
    _, first, inverse, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    rank = np.argsort(order).astype(held(out_idx))
    parts = values[first[order]], rank[inverse], counts[order].astype(held(out_idx))
    return UniqueWithCounts(*(_as_given(part, given) for part in parts))


def unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Unique:
    """Return the different elements in the order in which they first occur (`tf.unique`)."""
    return Unique(*unique_with_counts(x, out_idx)[:2])


@operation
def invert_permutation(x: Any, name: str | None = None) -> Any:
    """Return the permutation that undoes this one (`tf.math.invert_permutation`)."""
    x = tensor(x)
    return xp(x).argsort(x).astype(x.dtype)


def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Any]:
    """Return the rows of each number apart (`tf.dynamic_partition`)."""
    parts = known(tensor(partitions), "dynamic_partition", "Write tf.where(partitions == i, data, 0) for each part.")
    return [boolean_mask(data, parts == number) for number in range(num_partitions)]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Any:
    """Return rows put together again: row `indices[m][i]` is `data[m][i]` (`tf.dynamic_stitch`)."""
    places = [np.asarray(tensor(index)).reshape(-1) for index in indices]
    rows = [tensor(part) for part in data]
    flat = [
        row.reshape(len(place), *row.shape[tensor(index).ndim :])
        for place, row, index in zip(places, rows, indices, strict=True)
    ]
    joined = xp(*rows).concatenate(flat, 0)
    order = np.zeros(max(int(place.max()) for place in places if place.size) + 1, np.int32)
    order[np.concatenate(places)] = np.arange(sum(len(place) for place in places))
    return xp(joined).take(joined, order, axis=0)
