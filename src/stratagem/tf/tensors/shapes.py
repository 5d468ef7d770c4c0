"""`tf.TensorShape`: a tuple with the attributes that TensorFlow's programs use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from stratagem.core.errors import InputError


class TensorShape(tuple):
    """A shape, with None where a size is not known (`tf.TensorShape`).

    `x.shape` of an array of JAX is a plain tuple; `x.get_shape()` gives this.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/TensorShape

    Args:
        dims: The sizes; one number for a single axis.

    Raises:
        InputError: No number of axes is given: `TensorShape(None)`.

    Example:
        >>> TensorShape([None, 3]).as_list(), TensorShape([2, 3]).num_elements()
        ([None, 3], 6)
    """

    __slots__ = ()

    def __new__(cls, dims: Any) -> TensorShape:
        if dims is None:
            raise InputError(
                "TensorShape(None) was asked for.",
                "Arrays of JAX always have a known number of axes.",
                "Write None for sizes: tf.TensorShape([None, 3]).",
            )
        sizes: Iterable[Any] = (dims,) if np.ndim(dims) == 0 and not isinstance(dims, list | tuple) else dims
        return super().__new__(cls, (None if size is None else int(size) for size in sizes))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    ndims = rank
    """The number of axes."""

    @property
    def dims(self) -> list[int | None]:
        """The sizes."""
        return list(self)

    def as_list(self) -> list[int | None]:
        """Return the sizes as a list."""
        return list(self)

    def num_elements(self) -> int | None:
        """Return how many elements there are; None where a size is not known."""
        return int(np.prod(self, dtype=np.int64)) if self.is_fully_defined() else None

    def is_fully_defined(self) -> bool:
        """Return whether all sizes are known."""
        return None not in self

    def is_compatible_with(self, other: Any) -> bool:
        """Return whether a tensor could have both shapes."""
        other = TensorShape(other)
        return len(self) == len(other) and all(
            a is None or b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def assert_is_compatible_with(self, other: Any) -> None:
        """Check that a tensor could have both shapes.

        Raises:
            InputError: The shapes are not compatible.
        """
        if not self.is_compatible_with(other):
            raise InputError(f"Shapes {self} and {TensorShape(other)} are not compatible.", "Correct one of them.")

    def assert_has_rank(self, rank: int) -> None:
        """Check the number of axes.

        Raises:
            InputError: The number of axes differs.
        """
        self.assert_is_compatible_with([None] * rank)

    def merge_with(self, other: Any) -> TensorShape:
        """Return the shape with the sizes that are known in either shape."""
        self.assert_is_compatible_with(other)
        return TensorShape([b if a is None else a for a, b in zip(self, TensorShape(other), strict=True)])

    def concatenate(self, other: Any) -> TensorShape:
        """Return the axes of both shapes, one after the other."""
        return TensorShape([*self, *TensorShape(other)])

    def with_rank(self, rank: int) -> TensorShape:
        """Check the number of axes, and return this shape."""
        self.assert_has_rank(rank)
        return self

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __repr__(self) -> str:
        return f"TensorShape({list(self)})"

    def __str__(self) -> str:
        return str(tuple(self))
