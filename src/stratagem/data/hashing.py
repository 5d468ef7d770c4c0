"""`Hashing` and `HashedCrossing`: bins for words and numbers by their fingerprints, in functions of datasets.

Keras's layers of these names compute through TensorFlow on every backend. These take the same arguments and give the
same numbers, on NumPy arrays. Those of `tf.keras.layers` are layers, which compute on the host
(`stratagem.tf.keras.on_host`).

Sources of the semantics: https://keras.io/api/layers/preprocessing_layers/categorical/hashing/ and
https://keras.io/api/layers/preprocessing_layers/categorical/hashed_crossing/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.category_vectors import category_vectors, vectors_shape
from stratagem.data.fingerprints import fingerprint, joined_fingerprint, keyed_fingerprint
from stratagem.data.lookup import check_values
from stratagem.data.ragged import RaggedTensor
from stratagem.data.structure import encoded

Output = Literal["int", "one_hot", "multi_hot", "count"]

_CROSS_KEY: Final = 0xDECAFCAFFE
"""With which TensorFlow begins the fingerprint of a cross."""


class Hashed:
    """Bins by fingerprints: what both kinds share.

    Args:
        num_bins: Number of bins.
        output_mode: "int" gives the number of each value's bin. The others give vectors with an entry for each bin.
        sparse: Must be False.
        outputs: Possible values of `output_mode`.
        dtype: Of the result; None means int64 for numbers and float32 for vectors.
        name: Accepted as in Keras.

    Raises:
        InputError: An argument cannot be used.
    """

    def __init__(
        self, num_bins: int, output_mode: str, sparse: bool, outputs: Sequence[str], dtype: Any, name: str | None
    ) -> None:
        kind = type(self).__name__
        if not isinstance(num_bins, int) or isinstance(num_bins, bool) or num_bins < 1:
            raise InputError(f"{kind} was given num_bins={num_bins!r}.", "Write a whole number, 1 or more.")
        if output_mode not in outputs:
            raise InputError(f"{kind} was given output_mode={output_mode!r}.", f"Write one of {', '.join(outputs)}.")
        if sparse:
            raise InputError(f"{kind} was given sparse=True.", "Leave it out: vectors are arrays.")
        self.num_bins = num_bins
        self.output_mode = output_mode
        self.dtype = str(np.dtype(dtype or ("int64" if output_mode == "int" else "float32")))
        if output_mode == "int" and self.dtype not in ("int32", "int64"):
            raise InputError(f'{kind} was given dtype={dtype!r} and output_mode="int".', 'Write "int32" or "int64".')

    def output_spec(self, shape: Sequence[int | None]) -> tuple[tuple[int | None, ...], str]:
        """Return the shape and the dtype of what a call returns for inputs of a shape.

        Args:
            shape: Sizes; None where one is not known.
        """
        shape = tuple(shape)
        if self.output_mode != "int":
            shape = vectors_shape(shape, self.num_bins, self.output_mode)
        return shape, self.dtype

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"num_bins": self.num_bins, "output_mode": self.output_mode, "sparse": False, "dtype": self.dtype}

    def _result(self, bins: np.ndarray) -> EagerArray:
        if self.output_mode != "int":
            bins = category_vectors(bins, self.num_bins, self.output_mode)
        return bins.astype(self.dtype).view(EagerArray)


class Hashing(Hashed):
    """Put values into bins (`tf.keras.layers.Hashing`).

    The same value has the same bin in every process, on every machine, and in TensorFlow.

    Args:
        num_bins: Number of bins, that of `mask_value` included.
        mask_value: A value that has bin 0, which no other value has; None for none.
        salt: A number, or two, on which the bins depend; None for bins that everybody can compute.
        output_mode: "int" gives the number of each value's bin, "one_hot" a vector for each value. "multi_hot" and
            "count" give one vector for the values of the last axis, with 1 where a bin occurs, or how often.
        sparse: Must be False.
        dtype: Of the result; None means int64 for numbers and float32 for vectors.
        name: Accepted as in Keras.

    Raises:
        InputError: An argument cannot be used.

    Example:
        >>> Hashing(num_bins=3)([["A"], ["B"], ["C"], ["D"], ["E"]]).ravel().tolist()
        [1, 0, 1, 1, 2]
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: int | Sequence[int] | None = None,
        output_mode: Output = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(num_bins, output_mode, sparse, ("int", "one_hot", "multi_hot", "count"), dtype, name)
        self.mask_value = mask_value
        self.salt = None if salt is None else _two_numbers(salt)

    def __call__(self, inputs: Any) -> Any:
        """Return the bins of values.

        Args:
            inputs: Words or whole numbers, as an array of any shape, a list, a ragged tensor, or one. Of other numbers
                the whole part counts.
        """
        if isinstance(inputs, RaggedTensor) and self.output_mode == "int":
            return inputs.with_flat_values(self(inputs.flat_values))
        check_values(self, inputs)
        values = _array(inputs)
        is_masked, count = np.zeros(values.shape, bool), self.num_bins
        if self.mask_value is not None and count > 1:
            is_masked, count = values == _array(self.mask_value), count - 1
        texts = values if values.dtype == object else values.astype(np.int64)
        bins = _each(texts, lambda value: self._fingerprint(_text(value)) % count)
        if self.mask_value is not None and self.num_bins > 1:
            bins = np.where(is_masked, 0, bins + 1)
        return self._result(bins)

    def _fingerprint(self, text: bytes) -> int:
        return fingerprint(text) if self.salt is None else keyed_fingerprint(text, self.salt)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        salt = None if self.salt is None else list(self.salt)
        return {**super().get_config(), "mask_value": self.mask_value, "salt": salt}


class HashedCrossing(Hashed):
    """Put combinations of values into bins (`tf.keras.layers.HashedCrossing`).

    Args:
        num_bins: Number of bins.
        output_mode: "int" gives the number of each combination's bin, "one_hot" a vector.
        sparse: Must be False.
        name: Accepted as in Keras.
        dtype: Of the result; None means int64 for numbers and float32 for vectors.

    Raises:
        InputError: An argument cannot be used.

    Example:
        >>> HashedCrossing(num_bins=5)((["red", "green", "blue"], [1, 2, 3])).tolist()
        [4, 2, 4]
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: Literal["int", "one_hot"] = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_bins, output_mode, sparse, ("int", "one_hot"), dtype, name)

    def __call__(self, inputs: Sequence[Any]) -> EagerArray:
        """Return the bins of combinations.

        Args:
            inputs: Two or more arrays of words or whole numbers, of shape `()`, `(rows,)` or `(rows, 1)`.

        Raises:
            InputError: There are fewer arrays, or they have other shapes or dtypes.
        """
        if not isinstance(inputs, list | tuple) or len(inputs) < 2:
            count = f" of {len(inputs)}" if isinstance(inputs, list | tuple) else ""
            raise InputError(
                f"HashedCrossing was called with a {type(inputs).__name__}{count}.",
                "Give it two or more arrays: crossing((colors, sizes)).",
            )
        for each in inputs:
            check_values(self, each)
        columns = [_array(each) for each in inputs]
        shapes = [column.shape for column in columns]
        if len(set(shapes)) > 1 or len(shapes[0]) > 2 or shapes[0][1:] not in ((), (1,)):
            raise InputError(
                f"HashedCrossing was called with arrays of shapes {', '.join(map(str, shapes))}.",
                "Give it arrays of one shape: (), (rows,) or (rows, 1).",
            )
        dtypes = [str(column.dtype) for column in columns if column.dtype != object and column.dtype.kind not in "iu"]
        if dtypes:
            raise InputError(f"HashedCrossing was called with {dtypes[0]}.", "Give it words or whole numbers.")
        prints = [_each(column, _value_in_cross, np.uint64).ravel().tolist() for column in columns]
        bins = [self._bin(row) for row in zip(*prints, strict=True)]
        return self._result(np.array(bins, np.int64).reshape(shapes[0]))

    def _bin(self, row: Sequence[int]) -> int:
        joined = _CROSS_KEY
        for value in row:
            joined = joined_fingerprint(joined, value)
        return joined % self.num_bins


def _two_numbers(salt: Any) -> tuple[int, int]:
    if isinstance(salt, int):
        return salt, salt
    if isinstance(salt, list | tuple) and len(salt) == 2 and all(isinstance(each, int) for each in salt):
        return salt[0], salt[1]
    raise InputError(f"Hashing was given salt={salt!r}.", "Write a whole number, or a list of two.")


def _array(values: Any) -> np.ndarray:
    """Return words as an array of bytes, numbers as they are."""
    array = np.asarray(values)
    return np.asarray(encoded(array), object) if array.dtype.kind in "OSU" else array


def _each(values: np.ndarray, number_of: Callable[[Any], int], dtype: Any = np.int64) -> np.ndarray:
    """Return a number for each value; values that occur again are computed once."""
    listed = values.ravel().tolist()
    numbers = {value: number_of(value) for value in set(listed)}
    return np.array([numbers[value] for value in listed], dtype).reshape(values.shape)


def _text(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _value_in_cross(value: bytes | int) -> int:
    return fingerprint(value) if isinstance(value, bytes) else value % 2**64
