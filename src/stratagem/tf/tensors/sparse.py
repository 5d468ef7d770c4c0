"""`tf.sparse`: products, sums and other numbers of sparse tensors. `sparse_arranging` has what moves values only.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/sparse
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from stratagem.data.sparse import SparseTensor, common_library, flat_places, known_part, places_of
from stratagem.tf import derivatives
from stratagem.tf.tensors import counting, creation, elementwise, indexing
from stratagem.tf.tensors.marks import Axes, Tensor
from stratagem.tf.tensors.operation import (
    is_text,
    of_sparse,
    on_host,
    operation,
    refusal,
    refuse_outside,
    tensor,
    xp,
)
from stratagem.tf.tensors.shapes import TensorShape
from stratagem.tf.tensors.variables import IndexedSlices


def sparse(value: Any, what: str) -> SparseTensor:
    """Return a sparse tensor as it is.

    Args:
        value: It.
        what: The function that was given it.

    Raises:
        InputError: It is none.
    """
    if isinstance(value, SparseTensor):
        return value
    raise refusal(
        f"{what} was given {type(value).__name__}, not a SparseTensor.",
        "Write tf.sparse.from_dense(tensor); or use the function for dense tensors, for example tf.reduce_sum.",
        "It computes with the values and the indices of a sparse tensor.",
    )


def _numbers(value: SparseTensor, what: str) -> Any:
    """Return the values as a tensor of numbers."""
    values = tensor(value.values)
    if is_text(values) or values.dtype == np.bool_:
        raise refusal(
            f"{what} was given a SparseTensor of {value.dtype}.",
            "Convert its values: sparse.with_values(tf.cast(sparse.values, tf.float32)).",
            "It computes with numbers.",
        )
    return values


def _by_segment(kind: str, values: Any, ids: Any, count: int) -> Any:
    """Return the "sum" or "max" of the values with each number from 0 to `count - 1`."""
    if not on_host(values):
        return derivatives.segments(kind, count)(values, ids)
    found = np.zeros((count, *values.shape[1:]), values.dtype)
    if kind == "max":
        found[ids] = -np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).min
    (np.maximum if kind == "max" else np.add).at(found, ids, values)
    return found


@operation
def sparse_dense_matmul(sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False) -> Any:
    """Return the product of a sparse and a dense matrix (`tf.sparse.sparse_dense_matmul`).

    Values at equal indices are added up. The product has gradients for the values and for the dense matrix.

    Args:
        sp_a: The first matrix: sparse, or dense if the second is sparse.
        b: The second matrix.
        adjoint_a: Whether to transpose and conjugate the first matrix.
        adjoint_b: Whether to transpose and conjugate the second matrix.

    Returns:
        A dense matrix.

    Raises:
        InputError: The matrices do not fit together; or, in a compiled function, the shape of the sparse matrix is not
            known.

    Example:
        >>> a = SparseTensor([[0, 1], [1, 0]], [2.0, 3.0], [2, 2])
        >>> sparse_dense_matmul(a, [[1.0], [10.0]]).tolist()
        [[20.0], [3.0]]
    """
    what = "tf.sparse.sparse_dense_matmul"
    if isinstance(b, SparseTensor) and not isinstance(sp_a, SparseTensor):
        turned = (adjoint_a, adjoint_b) if adjoint_a != adjoint_b else (not adjoint_a, not adjoint_b)
        return sparse_dense_matmul(b, sp_a, *turned).T
    if isinstance(b, SparseTensor):
        raise refusal(f"{what} was given two sparse tensors.", "Make one of them dense: tf.sparse.to_dense(b).")
    matrix = sparse(sp_a, what)
    sizes, values, dense = matrix.sizes(what), _numbers(matrix, what), tensor(b)
    indices = places_of(matrix, what)
    own, its = sizes[::-1] if adjoint_a else sizes, dense.shape[::-1] if adjoint_b else dense.shape
    differ = dense.ndim > 0 and isinstance(its[0], int) and own[-1] != its[0]  # it may be symbolic, in a model
    if len(sizes) != 2 or dense.ndim != 2 or differ or values.dtype != dense.dtype:
        raise refusal(
            f"{what} was given a sparse {values.dtype} tensor of shape {sizes} and a dense {dense.dtype} one of shape "
            f"{tuple(dense.shape)}, with adjoint_a={adjoint_a} and adjoint_b={adjoint_b}.",
            "Give matrices of one dtype, the first with as many columns as the second has rows.",
        )
    numpy = xp(values, dense)
    rows, columns = (indices[:, 1], indices[:, 0]) if adjoint_a else (indices[:, 0], indices[:, 1])
    values = numpy.conj(values) if adjoint_a else values
    dense = numpy.conj(dense).T if adjoint_b else dense
    # int32: JAX counts so, and would convert places with a warning where a size is symbolic, in a model.
    return _by_segment("sum", values[:, None] * dense[columns.astype(np.int32)], rows, own[0])


def _reduced(kind: str, sp_input: Any, axis: Any, keepdims: bool, output_is_sparse: bool) -> Any:
    what = f"tf.sparse.reduce_{kind}"
    given = sparse(sp_input, what)
    sizes, values, indices = given.sizes(what), _numbers(given, what), places_of(given, what)
    along = range(len(sizes)) if axis is None else np.atleast_1d(np.asarray(axis, np.int64)).tolist()
    if any(not -len(sizes) <= each < len(sizes) for each in along):
        raise refusal(f"{what} was given axis={axis} for a SparseTensor of shape {sizes}.", "Correct the axis.")
    gone = {each % len(sizes) for each in along}
    kept = [each for each in range(len(sizes)) if each not in gone]
    shape = [sizes[each] for each in kept]
    ids = flat_places(indices[:, kept], shape)
    whole = [1 if each in gone else size for each, size in enumerate(sizes)] if keepdims else shape
    if output_is_sparse:
        groups, ids = np.unique(given.places(what)[:, kept], axis=0, return_inverse=True)
        found = _by_segment(kind, values, ids.reshape(-1), len(groups))
        places = np.zeros((len(groups), len(sizes)), np.int64)
        places[:, kept] = groups
        return SparseTensor(places if keepdims else groups, found, whole)
    count = math.prod(shape)
    found = _by_segment(kind, values, ids, count)
    if kind == "max":  # where there is no value it is zero
        numpy = xp(found)
        there = _by_segment("sum", numpy.ones(values.shape, np.int32), ids, count) > 0
        found = numpy.where(there, found, numpy.zeros_like(found))
    return found.reshape(whole)


@operation
def reduce_sum(
    sp_input: Any, axis: Axes = None, keepdims: bool | None = None, output_is_sparse: bool = False, name: Any = None
) -> Any:
    """Return the sums of a sparse tensor's values along axes (`tf.sparse.reduce_sum`).

    Args:
        sp_input: The sparse tensor.
        axis: An axis, or several; None for all.
        keepdims: Whether the axes stay, with size 1.
        output_is_sparse: Whether the result is a sparse tensor with the sums of all places that have values.
        name: Accepted as in TensorFlow.

    Returns:
        A dense tensor, or a sparse one.

    Raises:
        InputError: There is no such axis; or, in a compiled function, numbers that decide the shape of the result are
            not known.

    Example:
        >>> reduce_sum(SparseTensor([[0, 1], [0, 2], [1, 0]], [1, 2, 3], [3, 3]), axis=1).tolist()
        [3, 3, 0]
    """
    return _reduced("sum", sp_input, axis, bool(keepdims), output_is_sparse)


@operation
def reduce_max(
    sp_input: Any, axis: Axes = None, keepdims: bool | None = None, output_is_sparse: bool = False, name: Any = None
) -> Any:
    """Return the greatest value of a sparse tensor along axes, or zero where it has no value (`tf.sparse.reduce_max`).

    The arguments and errors are those of `reduce_sum`. The greatest value may be negative: places without a value do
    not count.

    Example:
        >>> reduce_max(SparseTensor([[0, 1], [0, 2]], [-1, -2], [2, 3]), axis=1).tolist()
        [-1, 0]
    """
    return _reduced("max", sp_input, axis, bool(keepdims), output_is_sparse)


def _numbered(indices: np.ndarray) -> np.ndarray:
    """Return indices with one more column: how often the same came before."""
    _, groups, counts = np.unique(indices, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(groups.reshape(-1), kind="stable")
    before = np.empty(len(indices), np.int64)
    before[order] = np.arange(len(indices)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.concatenate([indices, before[:, None]], axis=1)


def _union(what: str, a: Any, b: Any) -> tuple[np.ndarray, list[Any], list[np.ndarray]]:
    """Return the indices of two sparse tensors together, the values of each, and for each where they are among these.

    Equal indices of one tensor stay apart; the first of one belongs to the first of the other, as in TensorFlow.
    """
    both = [sparse(a, what), sparse(b, what)]
    values = [_numbers(each, what) for each in both]
    sizes = [each.sizes(what) for each in both]
    if sizes[0] != sizes[1] or values[0].dtype != values[1].dtype:
        raise refusal(
            f"{what} was given sparse tensors of shapes {sizes[0]} and {sizes[1]}, of {values[0].dtype} and "
            f"{values[1].dtype}.",
            "Give two tensors of one shape and dtype: sparse tensors are not broadcast.",
        )
    numbered = [_numbered(each.places(what)) for each in both]
    groups, slots = np.unique(np.concatenate(numbered), axis=0, return_inverse=True)
    return groups[:, :-1], values, np.split(slots.reshape(-1), [len(numbered[0])])


@operation
def add(a: Any, b: Any, threshold: Any = 0) -> Any:
    """Return the sum of two tensors, at least one of them sparse (`tf.sparse.add`).

    Args:
        a: A tensor, sparse or not.
        b: Another tensor of the same shape.
        threshold: Sums of two sparse values that are nearer to zero than this are left out.

    Returns:
        A sparse tensor in the order of rows; or a dense tensor, if one of the two is dense.

    Raises:
        InputError: None is sparse, or the shapes or dtypes differ; or, in a compiled function, the indices of two
            sparse tensors are not known.

    Example:
        >>> first, second = SparseTensor([[0], [2]], [1, 2], [3]), SparseTensor([[2]], [3], [3])
        >>> add(first, second).values.tolist(), add(first, [1, 1, 1]).tolist()
        ([1, 5], [2, 1, 3])
    """
    what = "tf.sparse.add"
    if not isinstance(a, SparseTensor) or not isinstance(b, SparseTensor):
        return _added_to_dense(*((a, b) if isinstance(a, SparseTensor) else (b, a)))
    indices, values, slots = _union(what, a, b)
    together = xp(*values).concatenate(values)
    sums = _by_segment("sum", together, np.concatenate(slots), len(indices))
    if np.any(np.asarray(threshold) > 0):
        known = known_part(sums, f"{what} with a threshold", "the sums")
        kept = np.flatnonzero((np.abs(known) >= threshold) | (np.bincount(np.concatenate(slots)) < 2))
        indices, sums = indices[kept], sums[kept]
    return SparseTensor(indices, sums, a.dense_shape)


def _added_to_dense(given: Any, other: Any) -> Any:
    what = "tf.sparse.add"
    one = sparse(given, what)
    sizes, values, dense = one.sizes(what), _numbers(one, what), tensor(other)
    if tuple(dense.shape) != sizes or dense.dtype != values.dtype:
        raise refusal(
            f"{what} was given a sparse {values.dtype} tensor of shape {sizes} and a dense {dense.dtype} one of shape "
            f"{tuple(dense.shape)}.",
            "Give two tensors of one shape and dtype: nothing is broadcast.",
        )
    at = tuple(places_of(one, what).T)
    if not on_host(values, dense):
        return dense.at[at].add(values)
    total = dense.copy()
    np.add.at(total, at, values)
    return total


def _extreme(of: str) -> Callable[..., Any]:
    def function(sp_a: Any, sp_b: Any) -> Any:
        indices, values, slots = _union(f"tf.sparse.{of}", sp_a, sp_b)
        filled = [_by_segment("sum", own, at, len(indices)) for own, at in zip(values, slots, strict=True)]
        return SparseTensor(indices, getattr(xp(*filled), of)(*filled), sp_a.dense_shape)

    text = f"""Return the {of} of two sparse tensors wherever one has a value (`tf.sparse.{of}`).

    Args:
        sp_a: A sparse tensor. It is zero where it has no value.
        sp_b: Another sparse tensor of the same shape.
        name: No effect.

    Raises:
        InputError: The shapes or dtypes differ; or, in a compiled function, the indices are not known.

    Example:
        >>> {of}(SparseTensor([[0]], [-1], [3]), SparseTensor([[2]], [5], [3])).values.tolist()
        {[0, 5] if of == "maximum" else [-1, 0]}
    """
    return operation(function, of, text)


maximum = _extreme("maximum")
minimum = _extreme("minimum")


@operation
def softmax(sp_input: Any) -> Any:
    """Return the softmax of the values in each row, without the places that have no value (`tf.sparse.softmax`).

    Args:
        sp_input: A sparse tensor of two or more axes. The last axis is that of the classes.

    Returns:
        A sparse tensor with values at the same places.

    Raises:
        InputError: The tensor has one axis, or no floating-point values.

    Example:
        >>> softmax(SparseTensor([[0, 0], [0, 2], [1, 1]], [1.0, 1.0, 7.0], [2, 3])).values.tolist()
        [0.5, 0.5, 1.0]
    """
    what = "tf.sparse.softmax"
    given = sparse(sp_input, what)
    values, sizes, indices = _numbers(given, what), given.sizes(what), places_of(given, what)
    if len(sizes) < 2 or np.issubdtype(values.dtype, np.integer):
        raise refusal(
            f"{what} was given a SparseTensor of shape {sizes} and dtype {values.dtype}.",
            "Give floating-point values, and two axes or more.",
        )
    rows, count = flat_places(indices[:, :-1], sizes[:-1]), math.prod(sizes[:-1])
    if isinstance(rows, np.ndarray):  # only rows with values, as there may be many without
        groups, rows = np.unique(rows, return_inverse=True)
        count = len(groups)
    numpy = xp(values)
    most = _by_segment("max", values if numpy is np else derivatives.constant(values), rows, count)
    powers = numpy.exp(values - most[rows])
    return given.with_values(powers / _by_segment("sum", powers, rows, count)[rows])


@operation
def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function for the values of sparse tensors, at the same places (`tf.sparse.map_values`).

    Args:
        op: The function. It gets the values, and returns as many values.
        *args: The arguments of the function. Sparse tensors among them must have the same indices and shape.
        **kwargs: Arguments of the function by name.

    Raises:
        InputError: No argument is sparse, two have different indices, or the function returns another number of values.

    Example:
        >>> map_values(lambda x, y: x + y, SparseTensor([[1]], [5], [3]), 10).values.tolist()
        [15]
    """
    found = list(_sparse_ones([*args, *kwargs.values()]))
    if not found:
        raise refusal("tf.sparse.map_values was given no SparseTensor.", "Call the function directly.")
    first, what = found[0], "tf.sparse.map_values"
    for other in found[1:]:
        if other.indices is not first.indices and not np.array_equal(other.places(what), first.places(what)):
            raise refusal(
                "tf.sparse.map_values was given sparse tensors with different indices.", "Write tf.sparse.add."
            )
    made = op(*map(_values_of, args), **{name: _values_of(value) for name, value in kwargs.items()})
    if made.shape[:1] != first.values.shape:
        raise refusal(
            f"The function given to tf.sparse.map_values made a tensor of shape {tuple(made.shape)} of "
            f"{first.values.shape[0]} values.",
            "Return one result for each value.",
        )
    return first.with_values(made)


def _sparse_ones(values: Sequence[Any]) -> Iterator[SparseTensor]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _sparse_ones(value)
        elif isinstance(value, SparseTensor):
            yield value


def _values_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_values_of, value))
    return value.values if isinstance(value, SparseTensor) else value


def _segments(kind: str) -> Callable[..., Any]:
    def function(
        data: Tensor,
        indices: Tensor,
        segment_ids: Tensor,
        num_segments: Any = None,
        name: str | None = None,
        sparse_gradient: bool = False,
    ) -> Any:
        what = f"tf.sparse.segment_{kind}"
        if kind != "sum" and np.issubdtype(data.dtype, np.integer):
            raise refusal(f"{what} was given whole numbers, of {data.dtype}.", "Write tf.cast(data, tf.float32).")
        refuse_outside(indices, data.shape[0], f"The indices of {what}", "rows")
        whole = "Give num_segments."
        ids = segment_ids if num_segments is not None else indexing.known(segment_ids, what.removeprefix("tf."), whole)
        count = int(num_segments) if num_segments is not None else int(ids[-1]) + 1 if ids.size else 0
        refuse_outside(segment_ids, count, f"The segment_ids of {what}", "segments")
        known = common_library(ids) is np or num_segments is None
        if known and np.any(ids[1:] < ids[:-1]):
            raise refusal(
                f"{what} was given segment_ids that do not ascend: {ids.tolist()}.",
                "Sort them, and bring indices into the same order.",
            )
        return counting.segment(data[indices], segment_ids, kind, count)

    text = f"""Return the {kind} of chosen rows of each segment (`tf.sparse.segment_{kind}`).

    Args:
        data: The tensor.
        indices: The numbers of the chosen rows.
        segment_ids: The segment of each chosen row, in ascending order.
        num_segments: The number of segments; None for as many as have rows. A compiled function that computes the
            segments needs it.
        name: No effect.
        sparse_gradient: No effect.

    Raises:
        InputError: There is no such row or segment, or the segments are not in order.

    Example:
        >>> segment_{kind}([[1.0], [3.0], [5.0]], [0, 2], [0, 0]).tolist() == [[{
        {"sum": "6.0", "mean": "3.0", "sqrt_n": "6.0 / np.float32(2**0.5)"}[kind]
    }]]
        True
    """
    return operation(function, f"segment_{kind}", text)


segment_sum = _segments("sum")
segment_mean = _segments("mean")
segment_sqrt_n = _segments("sqrt_n")


@operation
def mask(a: IndexedSlices, mask_indices: Any) -> IndexedSlices:
    """Return the slices that are not at some indices (`tf.sparse.mask`).

    Args:
        a: Slices of a tensor (`tf.IndexedSlices`).
        mask_indices: The indices of the slices to leave out.

    Example:
        >>> mask(IndexedSlices([[1], [2], [3]], [4, 0, 9]), [4, 9]).values.tolist()
        [[2]]
    """
    what = "tf.sparse.mask"
    at, gone = known_part(a.indices, what, "the indices"), known_part(tensor(mask_indices), what, "mask_indices")
    kept = np.flatnonzero(~np.isin(at, gone))
    return IndexedSlices(a.values[kept], a.indices[kept], a.dense_shape)


_ZERO_AT_ZERO: Final = "abs asin asinh atan atanh bessel_i0e bessel_i1e erf negative sign sin sqrt square tan tanh"
"""Functions of one number that take sparse tensors in TensorFlow. Their values alone change."""


def _shape_of(value: SparseTensor) -> TensorShape:
    return TensorShape(value.shape)


def install() -> None:
    """Let functions of one number, casts and identities take sparse tensors. A second call does nothing."""
    for function in (*(getattr(elementwise, name) for name in _ZERO_AT_ZERO.split()), creation.cast, creation.identity):
        of_sparse(function, functools.partial(map_values, function))
    kind: Any = SparseTensor
    kind.get_shape = _shape_of
