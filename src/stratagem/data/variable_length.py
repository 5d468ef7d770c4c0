"""Features of any length, as `VarLenFeature` reads them, and what makes them dense."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.data.ragged import RaggedTensor
from stratagem.data.sparse import SparseTensor
from stratagem.data.structure import Composite


class VariableLength(EagerArray):
    """Result of `VarLenFeature`: the values of one example, or a vector with those of each example of a batch.

    It has the parts of a `tf.SparseTensor` besides, in the function that parses: further on it is an array.

    Example:
        >>> np.array([7, 8]).view(VariableLength).values.tolist()
        [7, 8]
    """

    @property
    def values(self) -> EagerArray:
        """The values, those of a batch one example after another."""
        return np.concatenate(self._rows).view(EagerArray)

    @property
    def indices(self) -> EagerArray:
        """Places of `values`: in the example, or the example and the place in it."""
        places = [(example, place) for example, row in enumerate(self._rows) for place in range(len(row))]
        whole = np.array(places, np.int64).reshape(-1, 2)
        return (whole if self._is_batch else whole[:, 1:]).view(EagerArray)

    @property
    def dense_shape(self) -> EagerArray:
        """The shape that holds all: the longest row gives the last size."""
        longest = max(map(len, self._rows))
        return np.array([len(self), longest] if self._is_batch else [longest], np.int64).view(EagerArray)

    @property
    def _is_batch(self) -> bool:
        return self.dtype.hasobject and any(isinstance(item, np.ndarray) for item in self.view(np.ndarray))

    @property
    def _rows(self) -> list[np.ndarray]:
        plain = self.view(np.ndarray)
        return list(plain) if self._is_batch else [plain]


def to_dense(sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None) -> Any:
    """Return a sparse tensor, or what `VarLenFeature` reads, as one array (`tf.sparse.to_dense`).

    The values of one example are an array already, and those of a batch a vector of arrays.

    Args:
        sp_input: A `SparseTensor`; or what `parse_single_example` or `parse_example` returned for a `VarLenFeature`.
        default_value: What is elsewhere; None for zero and b"".
        validate_indices: Whether an index that occurs twice is an error; if not, one of its values counts.
        name: Accepted as in TensorFlow.

    Raises:
        InputError: A value lies outside, or two at one place; or the shape is not known, in a compiled function.

    Example:
        >>> rows = np.empty(2, object)
        >>> rows[:] = [np.array([1, 2]), np.array([3])]
        >>> to_dense(rows, default_value=-1).tolist()
        [[1, 2], [3, -1]]
    """
    if isinstance(sp_input, SparseTensor) and validate_indices:
        sp_input.refuse_repeated()
    if isinstance(sp_input, Composite):
        return sp_input.dense(default_value)
    array = np.asarray(sp_input)
    if array.dtype.hasobject and array.ndim == 1 and len(array) and isinstance(array[0], np.ndarray):
        return RaggedTensor.stacked(array.tolist()).to_tensor(default_value)
    return array.view(EagerArray)
