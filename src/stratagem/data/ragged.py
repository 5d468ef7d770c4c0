"""Rows of different lengths in one value (`tf.RaggedTensor`): values one after another, and where each row ends.

Its parts are arrays of NumPy in datasets and at the top of a program, and arrays of JAX in what is compiled.

Source of the semantics: https://www.tensorflow.org/guide/ragged_tensor
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.ragged_making import MadeOfRows, eager, known, library, places_of_rows
from stratagem.data.sparse import SparseTensor, reorder
from stratagem.data.specs import RaggedTensorSpec
from stratagem.data.structure import Composite, objects


def joined(parts: Sequence[Any]) -> Any:
    """Return arrays, or ragged tensors, one after another."""
    first = parts[0]
    return first.joined(parts) if isinstance(first, RaggedTensor) else library(first).concatenate(parts)


def _value_by_value(compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return an operator of ragged tensors that works on their values as one of two arrays does."""

    def compute_values(self: RaggedTensor, other: Any) -> RaggedTensor:
        return self._with(other, compute)

    return compute_values


def _both_ways(compute: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return such an operator, and the one with its sides exchanged."""
    return _value_by_value(compute), _value_by_value(lambda own, its: compute(its, own))


class RaggedTensor(MadeOfRows):
    """Rows that differ in length (`tf.RaggedTensor`).

    Make one with `tf.ragged.constant`, with the methods whose names begin with `from_`, or with `Dataset.ragged_batch`.

    Args:
        values: The values of all rows, one row after another: an array, or a ragged tensor.
        row_splits: Where each row begins among `values`, and where the last ends. Neither is checked.

    Example:
        >>> rows = RaggedTensor.from_row_splits([1, 2, 3], [0, 2, 3])
        >>> rows, rows.to_tensor().tolist(), rows.row_lengths().tolist(), rows.shape
        (<tf.RaggedTensor [[1, 2], [3]]>, [[1, 2], [3, 0]], [2, 1], (2, None))
    """

    @classmethod
    def joined(cls, parts: Sequence[RaggedTensor]) -> RaggedTensor:
        """Return the rows of ragged tensors one after another."""
        lengths = library(parts[0].row_splits).concatenate([part.row_lengths() for part in parts])
        return RaggedTensor.from_row_lengths(joined([part.values for part in parts]), lengths, validate=False)

    @classmethod
    def stacked(cls, elements: Sequence[Any]) -> RaggedTensor:
        values = [element.values if isinstance(element, SingleRow) else element for element in elements]
        lengths = np.array([len(value) for value in values], np.int64)
        if len({value.shape[1:] for value in values if not isinstance(value, RaggedTensor)}) > 1:
            raise InputError(
                f"Rows of shapes {' and '.join(sorted({str(value.shape) for value in values}))} were to make a ragged "
                "batch.",
                "In a ragged batch, rows may differ only in their first size. Pad the other sizes with map, or write "
                "padded_batch.",
            )
        return cls.from_row_lengths(joined(values), lengths, validate=False)

    @property
    def flat_values(self) -> Any:
        """The values of the innermost rows, an array."""
        return self.values.flat_values if isinstance(self.values, RaggedTensor) else self.values

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The `row_splits` of all axes that may differ, the outermost first."""
        inner = self.values.nested_row_splits if isinstance(self.values, RaggedTensor) else ()
        return (self.row_splits, *inner)

    def nested_row_lengths(self, name: str | None = None) -> tuple[Any, ...]:
        """Return the `row_lengths` of all axes that may differ, the outermost first."""
        return tuple(splits[1:] - splits[:-1] for splits in self.nested_row_splits)

    @property
    def ragged_rank(self) -> int:
        """How many axes, behind the first, may differ."""
        return len(self.nested_row_splits)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Its shape, with None for sizes that differ."""
        return (self.row_splits.shape[0] - 1, None, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.flat_values.dtype

    def nrows(self, out_type: Any = None, name: str | None = None) -> Any:
        """Return the number of rows."""
        return eager(np.int64(self.row_splits.shape[0] - 1)).astype(_dtype(out_type, self.row_splits.dtype))

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Return the length of each row; with a higher axis, of the rows in the rows, as a ragged tensor."""
        if axis > 1:
            return self.with_values(self.values.row_lengths(axis - 1))
        return self.row_splits[1:] - self.row_splits[:-1]

    def row_starts(self, name: str | None = None) -> Any:
        """Return where each row begins among `values`."""
        return self.row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Any:
        """Return where each row ends among `values`."""
        return self.row_splits[1:]

    def value_rowids(self, name: str | None = None) -> Any:
        """Return the row of each of `values`."""
        places = library(self.row_splits).arange(self.values.shape[0])
        rows = library(self.row_splits).searchsorted(self.row_splits[1:], places, side="right")
        return rows.astype(self.row_splits.dtype)

    def bounding_shape(self, axis: int | None = None, name: str | None = None, out_type: Any = None) -> Any:
        """Return the sizes of the smallest dense tensor that holds all.

        Args:
            axis: The axis whose size is wanted; None for all.
            name: Accepted as in TensorFlow.
            out_type: The dtype of the result.
        """
        lengths = [known(length, "bounding_shape()") for length in self.nested_row_lengths()]
        sizes = [self.shape[0], *(max(length, default=0) for length in lengths), *self.flat_values.shape[1:]]
        kind = _dtype(out_type, self.row_splits.dtype)
        return np.array(sizes if axis is None else sizes[axis], kind).view(EagerArray)

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Return a ragged tensor with the same rows of other values."""
        return RaggedTensor(eager(new_values), self.row_splits)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Return a ragged tensor with the same rows of other innermost values."""
        nested = isinstance(self.values, RaggedTensor)
        return self.with_values(self.values.with_flat_values(new_values) if nested else new_values)

    def to_tensor(self, default_value: Any = None, name: str | None = None, shape: Any = None) -> Any:
        """Return the rows filled up to one length.

        Args:
            default_value: What to fill up with; None for zero, b"" and False.
            name: Accepted as in TensorFlow.
            shape: The shape of the result, None in it for the longest; longer rows are cut off.

        Raises:
            InputError: The lengths are not known, in a function that is compiled, and `shape` does not say the width.
        """
        sizes = [None if size in (None, -1) else int(size) for size in shape or ()]
        values = self.values
        if isinstance(values, RaggedTensor):
            values = values.to_tensor(default_value, shape=[None, *sizes[2:]] if sizes else None)
        xp, lengths = library(values), self.row_lengths()
        if sizes and sizes[1] is not None:
            width = sizes[1]
        else:
            width = int(max(known(lengths, "to_tensor() without shape=[None, width]"), default=0))
        blank = b"" if values.dtype.hasobject else np.zeros((), values.dtype)
        fill = blank if default_value is None else default_value
        fill = fill.encode() if isinstance(fill, str) else fill
        rest = values.shape[1:]
        if values.shape[0]:
            places = xp.minimum(self.row_splits[:-1, None] + np.arange(width), values.shape[0] - 1)
            valid = (np.arange(width) < lengths[:, None]).reshape(*places.shape, *(1 for _ in rest))
            dense = xp.where(valid, values[places], fill).astype(values.dtype)
        else:
            dense = xp.full((lengths.shape[0], width, *rest), fill, values.dtype)
        return eager(_fitted(dense, sizes, fill) if sizes else dense)

    dense = to_tensor

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """Return the values as those of a sparse tensor."""
        values, lengths = self.values, known(self.row_lengths(), "to_sparse()")
        if not isinstance(values, RaggedTensor) and values.ndim > 1:
            values = RaggedTensor.from_tensor(values, ragged_rank=values.ndim - 1)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        indices = np.stack([rows, np.arange(len(rows)) - np.asarray(self.row_splits)[rows]], axis=1)
        sizes = [len(lengths), max(lengths, default=0)]
        if isinstance(values, RaggedTensor):
            inner = values.to_sparse()
            indices = np.concatenate([indices[inner.indices[:, 0]], inner.indices[:, 1:]], axis=1)
            values, sizes = inner.values, [*sizes, *inner.dense_shape[1:]]
        return SparseTensor(indices, values, sizes)

    @classmethod
    def from_sparse(cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: Any = np.int64) -> Self:
        """Return the values of each row of a sparse tensor of two axes.

        Raises:
            InputError: A row has gaps, or there are other than two axes.
        """
        in_order = reorder(st_input)
        rows = cls.from_value_rowids(in_order.values, in_order.indices[:, 0], len(st_input))
        whole = len(st_input.shape) == 2 and np.array_equal(rows.to_sparse().indices, in_order.indices)
        if not whole:
            raise InputError(
                f"RaggedTensor.from_sparse was given a sparse tensor of shape {st_input.shape} that has gaps.",
                "The places of values in their rows would be lost.",
                "Give a tensor of two axes whose rows begin at 0 and have no gaps, or write tf.sparse.to_dense.",
            )
        return rows

    def to_list(self) -> list[Any]:
        """Return the rows as lists."""
        return [row.to_list() if isinstance(row, RaggedTensor) else np.asarray(row).tolist() for row in self]

    def numpy(self) -> np.ndarray:
        """Return the rows as an array of NumPy; of arrays where they differ in length."""
        rows = [row.numpy() if isinstance(row, RaggedTensor) else np.asarray(row) for row in self]
        return np.stack(rows) if len({row.shape for row in rows}) == 1 else objects(rows)

    def take(self, index: Any, axis: int = 0) -> RaggedTensor:
        """Return the rows with these numbers, as `numpy.ndarray.take` does along its first axis."""
        places, lengths = places_of_rows(np.asarray(self.row_splits), index)
        values = self.values.take(places) if isinstance(self.values, RaggedTensor) else self.values[places]
        return RaggedTensor.from_row_lengths(values, lengths, validate=False)

    def __len__(self) -> int:
        return self.row_splits.shape[0] - 1

    def __getitem__(self, key: Any) -> Any:
        row, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(row, slice):
            rows = self.take(np.arange(len(self))[row])
            return rows if not rest else _of_each_row(rows, tuple(rest))
        if np.ndim(row):
            return self.take(row)
        splits = known(self.row_splits, "A row of a ragged tensor")
        place = operator.index(row) + (len(self) if operator.index(row) < 0 else 0)
        if not 0 <= place < len(self):
            raise IndexError(f"Row {row} was asked of a ragged tensor that has {len(self)} rows.")
        found = self.values[splits[place] : splits[place + 1]]
        return found[tuple(rest)] if rest else found

    def __iter__(self) -> Iterator[Any]:
        for row in (self[place] for place in range(len(self))):
            yield row.view(SingleRow) if isinstance(row, np.ndarray) else row

    def check_rows(self, other: RaggedTensor) -> None:
        """Make sure that another ragged tensor has rows of the same lengths, as far as these are known.

        Raises:
            InputError: It has not.
        """
        for own, its in zip(self.nested_row_splits, other.nested_row_splits, strict=False):
            are_known = isinstance(own, np.ndarray) and isinstance(its, np.ndarray)
            if own.shape != its.shape or (are_known and not np.array_equal(own, its)):
                raise InputError(
                    f"Ragged tensors of shapes {self.shape} and {other.shape} have rows of different lengths.",
                    "Their values cannot be paired.",
                    "Compute with ragged tensors that have the same row_splits.",
                )

    def _with(self, other: Any, compute: Callable[[Any, Any], Any]) -> RaggedTensor:
        """Return what a function of two arrays makes of the innermost values, and of those of another such tensor."""
        if isinstance(other, RaggedTensor):
            self.check_rows(other)
            return self.with_flat_values(compute(self.flat_values, other.flat_values))
        if np.ndim(other):
            raise self.refused_in_batch()
        return self.with_flat_values(compute(self.flat_values, other))

    __add__, __radd__ = _both_ways(operator.add)
    __sub__, __rsub__ = _both_ways(operator.sub)
    __mul__, __rmul__ = _both_ways(operator.mul)
    __truediv__, __rtruediv__ = _both_ways(operator.truediv)
    __floordiv__, __rfloordiv__ = _both_ways(operator.floordiv)
    __mod__, __rmod__ = _both_ways(operator.mod)
    __pow__, __rpow__ = _both_ways(operator.pow)
    __eq__ = _value_by_value(operator.eq)
    __ne__ = _value_by_value(operator.ne)
    __lt__ = _value_by_value(operator.lt)
    __le__ = _value_by_value(operator.le)
    __gt__ = _value_by_value(operator.gt)
    __ge__ = _value_by_value(operator.ge)
    __hash__ = object.__hash__

    def __neg__(self) -> RaggedTensor:
        return self.with_flat_values(-self.flat_values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        rows = self.numpy()
        if rows.dtype.hasobject and not self.dtype.hasobject:
            raise self.refused_in_batch()
        return rows.astype(dtype or self.dtype)

    def __repr__(self) -> str:
        try:
            return f"<tf.RaggedTensor {self.to_list()}>"
        except Exception:  # its parts are not known yet, or there is one for each replica
            return f"tf.RaggedTensor({self.values!r}, {self.row_splits!r})"

    @property
    def component_spec(self) -> RaggedTensorSpec:
        """Its shape and dtype."""
        return RaggedTensorSpec(self.shape, self.dtype, self.ragged_rank, self.row_splits.dtype)

    def refused_in_batch(self) -> InputError:
        return InputError(
            f"A ragged tensor of shape {self.shape}, with rows of different lengths, was used as one array.",
            "The rows of a dense tensor, or of a batch for fit, must have one length.",
            "Write ragged.to_tensor(); in a dataset, write dataset.map(lambda batch: batch.to_tensor()), or "
            "padded_batch in place of ragged_batch.",
        )


class SingleRow(EagerArray, Composite):
    """Row of a ragged tensor: an array, of which a batch makes a ragged tensor again."""

    @classmethod
    def stacked(cls, elements: Sequence[Any]) -> RaggedTensor:
        return RaggedTensor.stacked(elements)

    @property
    def values(self) -> EagerArray:
        """The row as a plain array."""
        return self.view(EagerArray)

    @property
    def component_spec(self) -> RaggedTensorSpec:
        """Its shape and dtype."""
        return RaggedTensorSpec((None, *self.shape[1:]), self.dtype, 0)


def _dtype(asked: Any, otherwise: np.dtype) -> np.dtype:
    return otherwise if asked is None else np.dtype(getattr(asked, "as_numpy_dtype", asked))


def _of_each_row(rows: RaggedTensor, key: tuple[Any, ...]) -> RaggedTensor:
    if not isinstance(key[0], slice):
        raise InputError(
            f"The element {key[0]!r} of each row of a ragged tensor was asked for.",
            "Some rows may be too short for it. TensorFlow refuses it too.",
            "Write a slice, ragged[:, :1], or ragged.to_tensor()[:, 0].",
        )
    parts = [row[key] for row in rows]
    if not parts:
        return rows
    return RaggedTensor.stacked(parts)


def _fitted(dense: Any, sizes: Sequence[int | None], fill: Any) -> Any:
    """Return an array cut off or filled up to a shape, where it says a size."""
    cut = dense[tuple(slice(size) for size in sizes)]
    missing = [(0, 0 if size is None else size - have) for size, have in zip(sizes, cut.shape, strict=True)]
    if not any(after for _, after in missing):
        return cut
    return library(cut).pad(cut, missing, constant_values=fill)
