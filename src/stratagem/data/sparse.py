"""Values of an array that is zero elsewhere (`tf.sparse.SparseTensor`).

Source of the semantics: https://www.tensorflow.org/guide/sparse_tensor
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.ragged_making import eager, library, places_of_rows
from stratagem.data.specs import SparseTensorSpec
from stratagem.data.structure import Composite, as_array


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
        if not self.indices.size and isinstance(self.indices, np.ndarray) and len(self.dense_shape):
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

    def sizes(self, what: str) -> tuple[int, ...]:
        """Return the shape of the array, whose sizes are known.

        Args:
            what: The function that needs them.

        Raises:
            InputError: They are not known, in a function that is being compiled.
        """
        return tuple(known_part(self.dense_shape, what, "the sizes in dense_shape").tolist())

    def places(self, what: str) -> np.ndarray:
        """Return the indices, whose values are known.

        Args:
            what: The function that needs them.

        Raises:
            InputError: They are not known, in a function that is being compiled; or one lies outside of the array.
        """
        indices = known_part(self.indices, what, "the indices")
        sizes = self.sizes(what)
        outside = (indices < 0) | (indices >= sizes)
        if outside.any():
            raise InputError(
                f"A SparseTensor of shape {sizes} has a value at {indices[outside.any(axis=1)][0].tolist()}.",
                "Correct its indices, or its dense_shape.",
            )
        return indices

    def refuse_repeated(self) -> None:
        """Refuse two values at one place, where the indices are known.

        Raises:
            InputError: There are two.
        """
        if not isinstance(self.indices, np.ndarray):
            return
        places, counts = np.unique(self.indices, axis=0, return_counts=True)
        if (counts > 1).any():
            raise InputError(
                f"tf.sparse.to_dense was given a SparseTensor of shape {self.shape} with several values at "
                f"{places[counts > 1][0].tolist()}.",
                "An element of a dense tensor has one value.",
                "Write tf.sparse.reduce_sum(sparse, axis=[]), which adds them; or validate_indices=False: one counts.",
            )

    def dense(self, default_value: Any = None) -> Any:
        sizes = self.sizes("tf.sparse.to_dense")
        values, indices = self.values, self.indices
        fill = (b"" if values.dtype.hasobject else 0) if default_value is None else as_array(default_value)
        dense = np.full(sizes, fill, values.dtype)
        indices, xp = places_of(self, "tf.sparse.to_dense"), common_library(values, indices)
        if xp is not np:
            return xp.asarray(dense).at[tuple(indices.T)].set(xp.asarray(values))
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

    __array_ufunc__ = None
    """Lets `array * sparse` be this class's product, and not one of NumPy's."""

    def _by_value(self, other: Any, compute: Callable[[Any, Any], Any]) -> SparseTensor:
        """Return what an operator makes of each value and the element of a tensor at its place.

        The tensor is broadcast to the shape of this one, and not the other way round.

        Raises:
            InputError: The tensor has a shape or a dtype that does not fit.
        """
        if isinstance(other, Composite):
            raise InputError(
                f"An operator was given {other!r:.200} beside a SparseTensor of shape {self.shape}.",
                "Products of two sparse tensors are not supported, nor does TensorFlow have them.",
                "Make one of them dense with tf.sparse.to_dense. To add two sparse tensors, use tf.sparse.add.",
            )
        dense, sizes = eager(other), self.sizes("An operator")
        fits = dense.ndim <= len(sizes) and all(
            size in (1, own) for size, own in zip(dense.shape[::-1], sizes[::-1], strict=False)
        )
        if not fits:
            raise InputError(
                f"An operator was given a tensor of shape {tuple(dense.shape)} beside a SparseTensor of shape {sizes}.",
                "A dense tensor can be broadcast to a sparse one, but not the other way round.",
                "Give a tensor that has no more axes than the sparse one, and whose sizes are 1 or equal to its sizes.",
            )
        from_python = isinstance(other, int) and not isinstance(other, bool)
        if dense.dtype.kind != self.dtype.kind and not (from_python and self.dtype.kind in "iufcV"):
            raise InputError(
                f"An operator was given a tensor of {dense.dtype} beside a SparseTensor of {self.dtype}.",
                "Both must have the same dtype, as in TensorFlow.",
                "Write tf.cast(tensor, sparse.dtype), or cast the values: sparse.with_values(...).",
            )
        indices = places_of(self, "An operator")
        first = len(sizes) - dense.ndim
        at = [indices[:, first + axis] if size > 1 else indices[:, 0] * 0 for axis, size in enumerate(dense.shape)]
        xp = common_library(self.values, dense, indices)
        values, dense = xp.asarray(self.values), xp.asarray(dense).astype(self.dtype)
        with np.errstate(all="ignore"):  # 1 / 0 is infinity, and no reason to warn
            return SparseTensor.of_parts(self.indices, compute(values, dense[tuple(at)]), self.dense_shape)

    def __mul__(self, other: Any) -> SparseTensor:
        return self._by_value(other, operator.mul)

    def __rmul__(self, other: Any) -> SparseTensor:
        return self._by_value(other, operator.mul)

    def __truediv__(self, other: Any) -> SparseTensor:
        return self._by_value(other, operator.truediv)

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
            "A dense tensor, or a batch for fit, has all its elements.",
            "Write tf.sparse.to_dense(sparse); in a dataset, write dataset.map(tf.sparse.to_dense).",
        )


def _whole(numbers: Any) -> Any:
    """Return whole numbers as an array of NumPy, where they are known, also if JAX has computed them."""
    found = eager(numbers)
    try:
        return np.asarray(found).astype(np.int64).view(EagerArray)
    except Exception:  # of JAX, in a function that is being compiled
        return found


def known_part(numbers: Any, what: str, part: str) -> np.ndarray:
    """Return numbers that a result's shape depends on as an array of NumPy.

    Args:
        numbers: The numbers.
        what: The function that needs them.
        part: What they are, in the plural.

    Raises:
        InputError: They are not known, in a function that is being compiled.
    """
    try:
        return np.asarray(numbers)
    except Exception as error:  # of JAX, which this layer does not know
        raise InputError(
            f"{what} was called in a function that is being compiled, and {part} exist only when it runs.",
            "A compiled program has arrays of known shapes, and the result's shape depends on them.",
            "Make the sparse tensor outside, and let the function use it. Or compute this in dataset.map(...).",
        ) from error


def places_of(sparse: SparseTensor, what: str) -> Any:
    """Return the indices of a sparse tensor, of which none lies outside where they are known.

    Args:
        sparse: The sparse tensor.
        what: The function that needs them.

    Raises:
        InputError: One lies outside.
    """
    return sparse.places(what) if isinstance(sparse.indices, np.ndarray) else sparse.indices


def common_library(*arrays: Any) -> Any:
    """Return the library that computes with arrays: `numpy` where all are NumPy's, else `jax.numpy`."""
    return next((library(array) for array in arrays if not isinstance(array, np.ndarray)), np)


def flat_places(indices: Any, sizes: Sequence[int]) -> Any:
    """Return where indices lie in an array of these sizes whose elements stand one after another.

    Example:
        >>> flat_places(np.array([[0, 1], [1, 2]]), (2, 3)).tolist()
        [1, 5]
    """
    steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    if not isinstance(indices, np.ndarray) and math.prod(sizes) > np.iinfo(np.int32).max:
        raise InputError(
            f"Places in an array of shape {tuple(sizes)} were to be computed in a function that is being compiled.",
            "JAX counts with int32, which is too small for such an array.",
            "Make the sparse tensor outside, and let the function use it.",
        )
    return (indices * np.asarray(steps, indices.dtype)).sum(axis=1)


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """Return the elements of an array that are not zero (`tf.sparse.from_dense`).

    Example:
        >>> from_dense([[0, 3], [4, 0]]).indices.tolist()
        [[0, 1], [1, 0]]
    """
    dense = eager(tensor)
    numbers = known_part(dense, "tf.sparse.from_dense", "the values of its tensor")
    places = np.argwhere(numbers != (b"" if numbers.dtype.hasobject else 0))
    return SparseTensor(places, dense[tuple(places.T)], dense.shape)


def reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """Return a sparse tensor with its values in the order of rows (`tf.sparse.reorder`)."""
    indices = sp_input.indices
    if not indices.shape[1]:
        return sp_input
    order = common_library(indices).lexsort(tuple(indices.T[::-1]))
    return SparseTensor.of_parts(indices[order], picked(sp_input.values, order), sp_input.dense_shape)


def picked(values: Any, places: Any) -> Any:
    """Return the values at these places, which may both be arrays of NumPy or JAX."""
    return (
        common_library(values, places).asarray(values)[places] if not isinstance(places, np.ndarray) else values[places]
    )
