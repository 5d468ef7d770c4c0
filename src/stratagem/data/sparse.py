"""Values of an array that is zero elsewhere (`tf.sparse.SparseTensor`).

Source of the semantics: https://www.tensorflow.org/guide/sparse_tensor
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.ragged_making import eager, known, library, places_of_rows
from stratagem.data.specs import SparseTensorSpec
from stratagem.data.structure import Composite


class SparseTensor(Composite):
    """Values of an array that is zero elsewhere (`tf.sparse.SparseTensor`).

    Args:
        indices: For each value where it is: a matrix with a row for each value, and a column for each axis.
        values: The values.
        dense_shape: The shape of the array.

    Raises:
        InputError: The three do not fit together.

    Example:
        >>> sparse = SparseTensor(indices=[[0, 0], [1, 2]], values=[1, 2], dense_shape=[2, 3])
        >>> sparse.dense().tolist(), sparse.shape
        ([[1, 0, 0], [0, 0, 2]], (2, 3))
    """

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self.indices, self.values, self.dense_shape = _whole(indices), eager(values), _whole(dense_shape)
        if not self.indices.size and isinstance(self.indices, np.ndarray):
            self.indices = self.indices.reshape(0, len(self.dense_shape))
        if self.indices.shape != (*self.values.shape, *self.dense_shape.shape):
            raise InputError(
                f"A SparseTensor was asked for with indices of shape {self.indices.shape}, values of shape "
                f"{self.values.shape} and a dense_shape of {self.dense_shape.shape[0]} sizes.",
                "Give n values, a matrix of n rows of indices with a column for each axis, and a size for each axis.",
            )

    @classmethod
    def of_parts(cls, indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
        """Return a sparse tensor of parts that fit together, which may be any values."""
        made = cls.__new__(cls)
        made.indices, made.values, made.dense_shape = indices, values, dense_shape
        return made

    @classmethod
    def stacked(cls, elements: Sequence[SparseTensor]) -> SparseTensor:
        counts = [len(element.values) for element in elements]
        rows = np.repeat(np.arange(len(elements)), counts)[:, None]
        sizes = np.max([element.dense_shape for element in elements], axis=0)
        indices = np.concatenate([rows, np.concatenate([element.indices for element in elements])], axis=1)
        return cls(
            indices, np.concatenate([element.values for element in elements]), np.insert(sizes, 0, len(elements))
        )

    @classmethod
    def joined(cls, parts: Sequence[SparseTensor]) -> SparseTensor:
        places = []
        for part, first in zip(parts, np.cumsum([0, *map(len, parts)]), strict=False):
            places.append(np.concatenate([part.indices[:, :1] + first, part.indices[:, 1:]], axis=1))
        sizes = np.max([part.dense_shape for part in parts], axis=0)
        sizes[0] = sum(map(len, parts))
        return cls(np.concatenate(places), np.concatenate([part.values for part in parts]), sizes)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the array, with None for sizes that are not known yet."""
        if isinstance(self.dense_shape, np.ndarray):
            return tuple(self.dense_shape.tolist())
        return (None,) * self.indices.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.values.dtype

    def with_values(self, new_values: Any) -> SparseTensor:
        """Return a sparse tensor with other values at the same places."""
        return SparseTensor(self.indices, new_values, self.dense_shape)

    def dense(self, default_value: Any = None) -> Any:
        sizes = known(self.dense_shape, "tf.sparse.to_dense").tolist()
        values, indices = self.values, self.indices
        fill = (b"" if values.dtype.hasobject else 0) if default_value is None else default_value
        dense = np.full(sizes, fill, values.dtype)
        if not isinstance(values, np.ndarray):
            return library(values).asarray(dense).at[tuple(indices.T)].set(values)
        outside = (indices < 0) | (indices >= sizes)
        if outside.any():
            raise InputError(
                f"A SparseTensor of shape {tuple(sizes)} has a value at {indices[outside.any(axis=1)][0].tolist()}.",
                "Correct its indices, or its dense_shape.",
            )
        dense[tuple(indices.T)] = values
        return dense.view(EagerArray)

    def take(self, index: Any, axis: int = 0) -> SparseTensor:
        """Return the rows with these numbers, as `numpy.ndarray.take` does along its first axis."""
        in_order = reorder(self)
        ends = np.searchsorted(in_order.indices[:, 0], np.arange(len(self) + 1))
        places, lengths = places_of_rows(ends, index)
        rows = np.repeat(np.arange(len(lengths)), lengths)[:, None]
        indices = np.concatenate([rows, in_order.indices[places, 1:]], axis=1)
        return SparseTensor(indices, in_order.values[places], [len(lengths), *self.dense_shape[1:].tolist()])

    def __len__(self) -> int:
        return int(self.dense_shape[0])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) or np.ndim(key):
            return self.take(np.arange(len(self))[key])
        row = self.take([range(len(self))[key]])
        return SparseTensor(row.indices[:, 1:], row.values, row.dense_shape[1:])

    def __iter__(self) -> Iterator[SparseTensor]:
        return (self[place] for place in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise self.refused_in_batch()

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self.indices!r}, values={self.values!r}, dense_shape={self.dense_shape!r})"

    @property
    def component_spec(self) -> SparseTensorSpec:
        """Its shape and dtype."""
        return SparseTensorSpec(self.shape, self.dtype)

    def refused_in_batch(self) -> InputError:
        return InputError(
            f"A SparseTensor of shape {self.shape} was used as one array.",
            "A dense tensor, and a batch of fit, has all its elements.",
            "Write tf.sparse.to_dense(sparse), in a dataset dataset.map(tf.sparse.to_dense).",
        )


def _whole(numbers: Any) -> Any:
    found = eager(numbers)
    return found.astype(np.int64) if isinstance(found, np.ndarray) else found


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """Return the elements of an array that are not zero (`tf.sparse.from_dense`).

    Example:
        >>> from_dense([[0, 3], [4, 0]]).indices.tolist()
        [[0, 1], [1, 0]]
    """
    dense = known(eager(tensor), "tf.sparse.from_dense")
    places = np.argwhere(dense != (b"" if dense.dtype.hasobject else 0))
    return SparseTensor(places, dense[tuple(places.T)], dense.shape)


def reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor with its values in the order of rows (`tf.sparse.reorder`)."""
    indices = known(sp_input.indices, "tf.sparse.reorder")
    order = np.lexsort(indices.T[::-1])
    return SparseTensor(indices[order], np.asarray(sp_input.values)[order], sp_input.dense_shape)
