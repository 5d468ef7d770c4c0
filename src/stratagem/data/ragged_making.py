"""Ways to make a ragged tensor: of where its rows end, how long they are, or of a dense tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.structure import Composite, as_array


def eager(value: Any) -> Any:
    """Return an array of NumPy, or numbers of Python, with `.numpy()`; what is computed elsewhere as it is."""
    if hasattr(value, "__jax_array__") and not hasattr(value, "__array_namespace__"):
        value = value.__jax_array__()  # of a variable, in which a tape sees it read
    if isinstance(value, Composite) or (not isinstance(value, np.ndarray) and hasattr(value, "__array_namespace__")):
        return value
    return np.asarray(as_array(value)).view(EagerArray)


def library(array: Any) -> Any:
    """Return the library that computes with an array: `numpy` or `jax.numpy`."""
    return np if isinstance(array, np.ndarray) else array.__array_namespace__()


def places(numbers: Any) -> Any:
    """Return places or lengths: int64 where they are numbers of Python, as in TensorFlow."""
    known = eager(numbers)
    has_dtype = hasattr(numbers, "dtype")
    return known if has_dtype or not isinstance(known, np.ndarray) else known.astype(np.int64)


def known(array: Any, what: str) -> np.ndarray:
    """Return an array of NumPy.

    Raises:
        InputError: Its values do not exist yet.
    """
    try:
        return np.asarray(array)
    except Exception as error:  # of JAX, which this layer does not know
        raise InputError(
            f"{what} was asked for in a function that is being compiled.",
            "A compiled program has arrays of known shapes, but the lengths of the rows are not known there.",
            "Do it in dataset.map(...), before the data gets to the function; or write to_tensor(shape=[None, width]).",
        ) from error


def places_of_rows(splits: np.ndarray, index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where the values of some rows lie, one row after another, and how long these rows are.

    Example:
        >>> [part.tolist() for part in places_of_rows(np.array([0, 2, 2, 3]), [2, 0])]
        [[2, 0, 1], [1, 2]]
    """
    index = np.asarray(index)
    starts, lengths = splits[:-1][index], np.diff(splits)[index]
    first = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return first + np.arange(lengths.sum()), lengths


class MadeOfRows(Composite):
    """Class with the methods of `tf.RaggedTensor` that make one.

    Args:
        values: The values of all rows, one row after another.
        row_splits: Where each row begins among `values`, and where the last ends.
    """

    def __init__(self, values: Any, row_splits: Any) -> None:
        self.values = values
        self.row_splits = row_splits

    @classmethod
    def from_row_splits(cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True) -> Self:
        """Return the rows that begin and end at these places.

        Args:
            values: The values of all rows.
            row_splits: Where each row begins, and where the last ends.
            name: Accepted as in TensorFlow.
            validate: Whether the places are checked, where they are known.

        Raises:
            InputError: The places do not begin at 0, do not rise, or do not end where the values do.
        """
        values, splits = eager(values), places(row_splits)
        if validate and isinstance(splits, np.ndarray):
            ends = splits.tolist()
            if not ends or ends[0] != 0 or min(np.diff(splits), default=0) < 0 or ends[-1] != len(values):
                raise InputError(
                    f"A ragged tensor of {len(values)} values was asked for with row_splits {ends[:9]}.",
                    "Some values would be in no row, or in two.",
                    "Give splits that begin with 0, never decrease, and end with the number of values.",
                )
        return cls(values, splits)

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True) -> Self:
        """Return the rows that have these lengths.

        Example:
            >>> from stratagem.data.ragged import RaggedTensor
            >>> RaggedTensor.from_row_lengths([1, 2, 3], [1, 0, 2]).to_list()
            [[1], [], [2, 3]]
        """
        lengths = places(row_lengths)
        xp = library(lengths)
        ends = xp.cumsum(lengths).astype(lengths.dtype)
        return cls.from_row_splits(values, xp.concatenate([xp.zeros(1, lengths.dtype), ends]), name, validate)

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Any, nrows: Any = None, name: str | None = None, validate: bool = True
    ) -> Self:
        """Return the rows with these numbers: for each value the row that it is in, in order.

        Args:
            values: The values of all rows.
            value_rowids: The row of each.
            nrows: How many rows there are; None for as many as have a value.
            name: Accepted as in TensorFlow.
            validate: Whether the numbers are checked.

        Raises:
            InputError: The numbers are not in order, or do not fit.
        """
        ids = np.asarray(places(value_rowids))
        rows = int(ids[-1]) + 1 if nrows is None and len(ids) else int(nrows or 0)
        if validate and len(ids) and (min(np.diff(ids), default=0) < 0 or ids[0] < 0 or ids[-1] >= rows):
            raise InputError(
                f"A ragged tensor of {rows} rows was asked for with value_rowids {ids.tolist()[:9]}.",
                "Sort the values by their rows, and number the rows from 0 to nrows - 1.",
            )
        return cls.from_row_lengths(values, np.bincount(ids, minlength=rows).astype(ids.dtype), name, validate)

    @classmethod
    def from_row_starts(cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True) -> Self:
        """Return the rows that begin at these places."""
        values, starts = eager(values), places(row_starts)
        return cls.from_row_splits(values, np.append(starts, starts.dtype.type(len(values))), name, validate)

    @classmethod
    def from_row_limits(cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True) -> Self:
        """Return the rows that end at these places."""
        limits = places(row_limits)
        return cls.from_row_splits(values, np.insert(limits, 0, 0), name, validate)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Return rows of rows: the outermost places come first."""
        for splits in reversed(nested_row_splits):
            flat_values = cls.from_row_splits(flat_values, splits, name, validate)
        return flat_values

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Sequence[Any], name: str | None = None, validate: bool = True
    ) -> Any:
        """Return rows of rows: the outermost lengths come first."""
        for lengths in reversed(nested_row_lengths):
            flat_values = cls.from_row_lengths(flat_values, lengths, name, validate)
        return flat_values

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = np.int64,
    ) -> Self:
        """Return the rows of a dense tensor, without what fills them up.

        Args:
            tensor: At least two axes.
            lengths: The length of each row.
            padding: What rows end with that is no part of them; None, as `lengths`, for whole rows.
            ragged_rank: How many axes, behind the first, may differ.
            name: Accepted as in TensorFlow.
            row_splits_dtype: The dtype of the places.

        Raises:
            InputError: The values are not known yet; or lengths and padding are both given.

        Example:
            >>> from stratagem.data.ragged import RaggedTensor
            >>> RaggedTensor.from_tensor([[1, 0, 0], [2, 3, 0]], padding=0).to_list()
            [[1], [2, 3]]
        """
        dense = eager(tensor)
        if lengths is not None and padding is not None:
            raise InputError("from_tensor was given both lengths and padding.", "Give one of them.")
        if dense.ndim <= ragged_rank:
            raise InputError(
                f"from_tensor was given a tensor of shape {tuple(dense.shape)} and ragged_rank={ragged_rank}.",
                "Give a tensor with more axes than ragged_rank: rows need an axis in which they can differ.",
            )
        kind = np.dtype(getattr(row_splits_dtype, "as_numpy_dtype", row_splits_dtype))
        whole = dense.reshape(-1, *dense.shape[2:])
        splits = np.arange(dense.shape[0] + 1, dtype=kind) * dense.shape[1]
        if ragged_rank > 1:
            inner = cls.from_tensor(whole, lengths, padding, ragged_rank - 1, name, row_splits_dtype)
            return cls.from_row_splits(inner, splits, name)
        if lengths is None and padding is None:
            return cls.from_row_splits(whole, splits, name)
        if padding is not None:
            dense = known(dense, "RaggedTensor.from_tensor(padding=...)")
            filled = (dense == eager(padding)).reshape(*dense.shape[:2], -1).all(axis=-1)
            lengths = dense.shape[1] - np.cumprod(filled[:, ::-1], axis=1).sum(axis=1)
        own = np.minimum(known(places(lengths), "RaggedTensor.from_tensor(lengths=...)"), dense.shape[1])
        kept = (np.arange(dense.shape[1]) < own[:, None]).reshape(-1)
        return cls.from_row_lengths(whole[np.flatnonzero(kept)], own.astype(kind), name)
