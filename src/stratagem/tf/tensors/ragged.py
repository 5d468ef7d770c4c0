"""`tf.ragged`, and what operations on tensors do with ragged ones.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/ragged
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import ragged_making
from stratagem.data.ragged import RaggedTensor, joined
from stratagem.data.structure import as_array
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors import arranging, counting, creation, elementwise, indexing, neural, reductions
from stratagem.tf.tensors.operation import of_ragged


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = np.int64,
) -> Any:
    """Return a ragged tensor of nested lists (`tf.ragged.constant`).

    Args:
        pylist: Lists of lists of numbers or of text.
        dtype: The dtype of the values; None for the one that they have.
        ragged_rank: The number of axes after the first whose rows may differ in length; None for all axes of the lists.
        inner_shape: The shape of each value; None for the shape that `ragged_rank` leaves.
        name: Accepted as in TensorFlow.
        row_splits_dtype: The dtype of `row_splits`.

    Raises:
        InputError: The lists are not nested equally deep.

    Example:
        >>> constant([[1, 2], [], [3]]).row_splits.tolist()
        [0, 2, 2, 3]
    """
    inner = () if inner_shape is None else tuple(inner_shape)
    depths = set(_depths(pylist))
    deepest = max(depth for depth, _ in depths)
    if any(is_number and depth < deepest for depth, is_number in depths):
        raise InputError(
            f"tf.ragged.constant was given {pylist!r:.200}.",
            "Its lists are not nested equally deep.",
            "Give rows of one kind: numbers, or lists of numbers.",
        )
    rank = deepest - 1 - len(inner) if ragged_rank is None else ragged_rank
    lengths, level = [], [*pylist]
    for _ in builtins.range(rank):
        lengths.append([len(each) for each in level])
        level = [value for each in level for value in each]
    kind = None if dtype is None else as_dtype(dtype)
    values = as_array(level) if kind is None or kind == "string" else np.array(level, kind.as_numpy_dtype)
    values = values if len(level) else values.reshape(0, *inner)
    places = as_dtype(row_splits_dtype).as_numpy_dtype
    made = RaggedTensor.from_nested_row_lengths(values, [np.array(each, places) for each in lengths])
    return made if rank else ragged_making.eager(values)


def _depths(value: Any, depth: int = 0) -> Iterator[tuple[int, bool]]:
    """Yield how deep each number, and each empty list, lies; and whether it is a number."""
    if not isinstance(value, list | tuple | np.ndarray):
        yield depth, True
    elif not len(value):
        yield depth + 1, False
    else:
        for each in value:
            yield from _depths(each, depth + 1)


def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function for the innermost values, in the same rows (`tf.ragged.map_flat_values`).

    Args:
        op: The function; it must keep the number of values.
        *args: The arguments of the function. For ragged tensors, which must have the same rows, it gets the values.
        **kwargs: Arguments of the function by name.

    Raises:
        InputError: Two ragged tensors have rows of different lengths, or the function returns another number of values.

    Example:
        >>> map_flat_values(lambda x: x * 10, constant([[1], [2, 3]])).to_list()
        [[10], [20, 30]]
    """
    found: list[RaggedTensor] = []

    def flat(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(flat, value))
        if not isinstance(value, RaggedTensor):
            return value
        found.append(value)
        found[0].check_rows(value)
        return value.flat_values

    flat_args, flat_kwargs = [flat(arg) for arg in args], {name: flat(value) for name, value in kwargs.items()}
    made = op(*flat_args, **flat_kwargs)
    if not found:
        return made
    before = found[0].flat_values.shape[0]
    if made.shape[:1] != (before,):
        raise InputError(
            f"The function given to map_flat_values made an array of shape {tuple(made.shape)} from {before} values.",
            "It would not be known which row each value belongs to.",
            "Return one result for each value.",
        )
    return found[0].with_flat_values(made)


def range(
    starts: Any, limits: Any = None, deltas: Any = 1, dtype: Any = None, name: str | None = None, **_: Any
) -> RaggedTensor:
    """Return rows of numbers at equal distances (`tf.ragged.range`).

    Args:
        starts: The first number of each row; or the limits, if `limits` is not given.
        limits: The end of each row, which is not included.
        deltas: The distance between two numbers.
        dtype: The dtype of the numbers.
        name: Accepted as in TensorFlow.

    Example:
        >>> range([2, 0, 3]).to_list()
        [[0, 1], [], [0, 1, 2]]
    """
    first, last = (np.zeros_like(as_array(starts)), starts) if limits is None else (starts, limits)
    bounds = np.broadcast_arrays(*map(as_array, (first, last, deltas)))
    kind = bounds[0].dtype if dtype is None else as_dtype(dtype).as_numpy_dtype
    rows = [np.arange(*each, dtype=kind) for each in zip(*bounds, strict=True)]
    return RaggedTensor.stacked(rows)


def stack(values: Sequence[Any], axis: int = 0, name: str | None = None) -> RaggedTensor:
    """Return tensors, ragged or not, as the rows of one ragged tensor (`tf.ragged.stack`).

    Args:
        values: The rows.
        axis: The axis of the rows: 0.
        name: Accepted as in TensorFlow.

    Example:
        >>> stack([[1, 2], [3]]).to_list()
        [[1, 2], [3]]
    """
    if axis:
        raise InputError(f"tf.ragged.stack was given axis={axis}.", "Leave it out: here rows are stacked along axis 0.")
    return RaggedTensor.stacked([ragged_making.eager(value) for value in values])


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Any:
    """Return the row of each value (`tf.ragged.row_splits_to_segment_ids`).

    Example:
        >>> row_splits_to_segment_ids([0, 2, 2, 3]).tolist()
        [0, 0, 2]
    """
    places = ragged_making.places(splits)
    rows = RaggedTensor(np.empty(int(places[-1])), places).value_rowids()
    return rows if out_type is None else rows.astype(as_dtype(out_type).as_numpy_dtype)


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Any:
    """Return where each row begins and where the last row ends (`tf.ragged.segment_ids_to_row_splits`).

    Example:
        >>> segment_ids_to_row_splits([0, 0, 2]).tolist()
        [0, 2, 2, 3]
    """
    ids = ragged_making.places(segment_ids)
    splits = RaggedTensor.from_value_rowids(ids, ids, num_segments).row_splits
    return splits if out_type is None else splits.astype(as_dtype(out_type).as_numpy_dtype)


def _reduced(whole: Callable[..., Any], kind: str) -> None:
    """Let a reduction of tensors reduce ragged ones.

    Args:
        whole: The reduction.
        kind: What `counting.segment` does with the values of one row.
    """

    def reduce(input_tensor: RaggedTensor, axis: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
        if axis is None:
            return whole(input_tensor.flat_values)
        if keepdims or np.size(axis) != 1:
            raise InputError(
                f"{whole.__name__} of a ragged tensor was called with axis={axis}, keepdims={keepdims}.",
                "A ragged tensor can be reduced along one axis here, and the result does not keep that axis.",
                "Write one axis, axis=None, or to_tensor() first.",
            )
        return along(input_tensor, int(np.ravel(axis)[0]) % len(input_tensor.shape))

    def along(ragged: RaggedTensor, axis: int) -> Any:
        values, splits = ragged.values, ragged.row_splits
        if axis > 1:
            inner = along(values, axis - 1) if isinstance(values, RaggedTensor) else whole(values, axis - 1)
            return ragged.with_values(inner)
        if isinstance(values, RaggedTensor):
            raise ragged.refused_in_batch()
        rows, count = ragged.value_rowids(), len(ragged)
        if axis == 0:
            places = ragged_making.known(splits, f"{whole.__name__}(axis=0)")
            rows, count = np.arange(len(values)) - places[rows], int(max(np.diff(places), default=0))
        return by_group(values, rows, count)

    def by_group(values: Any, rows: Any, count: int) -> Any:
        if kind == "mean":  # of no values it is NaN, as that of a row of a tensor
            sizes = counting.segment(jnp.ones(values.shape[0], values.dtype), rows, "sum", count)
            sums = counting.segment(values, rows, "sum", count)
            return sums / sizes.reshape(-1, *(1 for _ in values.shape[1:]))
        if values.dtype == np.bool_:
            return counting.segment(values.astype(np.int32), rows, kind, count) > 0
        return counting.segment(values, rows, kind, count)

    of_ragged(whole, reduce)


def _concat(values: Sequence[Any], axis: Any, name: str | None = None) -> Any:
    parts = [part if isinstance(part, RaggedTensor) else RaggedTensor.from_tensor(part) for part in values]
    along = int(axis) % len(parts[0].shape)
    if along == 0:
        return RaggedTensor.joined(parts)
    if along > 1:
        return parts[0].with_values(_concat([part.values for part in parts], along - 1))
    return RaggedTensor.stacked([joined(pieces) for pieces in zip(*parts, strict=True)])


def _gather(params: Any, indices: Any, *args: Any, **options: Any) -> Any:
    if isinstance(indices, RaggedTensor):
        return indices.with_flat_values(indexing.gather(params, indices.flat_values, *args, **options))
    return params.take(ragged_making.known(ragged_making.eager(indices), "tf.gather of a ragged tensor"))


def install() -> None:
    """Let operations take ragged tensors. A second call does nothing."""
    by_value = [each for each in vars(elementwise).values() if hasattr(each, "__wrapped__")]
    by_value += [creation.cast, creation.identity, creation.ones_like, creation.zeros_like, neural.embedding_lookup]
    for function in by_value:
        of_ragged(function, functools.partial(map_flat_values, function))
    for kind in ("sum", "mean", "max", "min", "prod"):
        _reduced(getattr(reductions, f"reduce_{kind}"), kind)
    _reduced(reductions.reduce_all, "min")
    _reduced(reductions.reduce_any, "max")
    of_ragged(arranging.concat, _concat)
    of_ragged(indexing.gather, _gather)
