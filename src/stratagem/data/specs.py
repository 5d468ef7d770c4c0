"""`TensorSpec`: shape and dtype of each component of an element, known before the element is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.structure import Composite, Tree, flatten, map_leaves

Shape = tuple[int | None, ...]

_BYTES: dict[Any, np.dtype] = dict.fromkeys(("string", bytes, np.bytes_), np.dtype(object))
"""Names of the dtype of text and binary data. NumPy's own byte strings lose the zeros at their end."""


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Return a shape as a tuple. A number is the size of one axis, as TensorFlow takes it.

    Example:
        >>> sizes_of(4), sizes_of([None, 3])
        ((4,), (None, 3))
    """
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one component (`tf.TensorSpec`).

    Args:
        shape: One entry for each axis; an entry is None if the size may differ between elements. None means any shape,
            and a number means one axis.
        dtype: Anything that `numpy.dtype` accepts, or a dtype of JAX or TensorFlow. "string" or `bytes` mean text and
            binary data, which stay Python bytes (dtype `object`).
        name: A name, for display only.

    Example:
        >>> TensorSpec(shape=(None, 28, 28), dtype="float32")
        TensorSpec(shape=(None, 28, 28), dtype=dtype('float32'), name=None)
    """

    shape: Shape | None
    dtype: Any = np.float32
    name: str | None = None

    def __post_init__(self) -> None:
        shape = self.shape
        if shape is not None:
            shape = tuple(None if size is None else int(size) for size in sizes_of(shape))
        object.__setattr__(self, "shape", shape)
        try:
            dtype = _BYTES.get(self.dtype) or np.dtype(getattr(self.dtype, "as_numpy_dtype", self.dtype))
        except TypeError:
            raise InputError(
                f"dtype is {self.dtype!r}.", "Write a NumPy dtype or its name, such as 'float32'."
            ) from None
        object.__setattr__(self, "dtype", dtype)

    @classmethod
    def of(cls, value: Any) -> TensorSpec:
        """Return the spec of an array, of bytes, or of anything with `shape` and `dtype` (such as `tf.TensorSpec`)."""
        if isinstance(value, bytes):
            return cls((), object)
        if isinstance(value, Composite):
            return value.component_spec
        return value if isinstance(value, cls) else cls(value.shape, value.dtype, getattr(value, "name", None))

    def batched(self, size: int | None) -> TensorSpec:
        """Return the spec of `size` such components joined along a new leading axis."""
        return replace(self, shape=None if self.shape is None else (size, *self.shape))

    def row(self) -> TensorSpec:
        """Return the spec without its leading axis."""
        return replace(self, shape=None if self.shape is None else self.shape[1:])

    def merged(self, other: TensorSpec) -> TensorSpec:
        """Return the spec that admits everything that either spec admits, with the dtype and the name of this one.

        Example:
            >>> TensorSpec((2, 3)).merged(TensorSpec((4, 3))).shape
            (None, 3)
        """
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return replace(self, shape=None)
        sizes = zip(self.shape, other.shape, strict=True)
        return replace(self, shape=tuple(a if a == b else None for a, b in sizes))

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this shape fits."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want is None or want == have for want, have in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, init=False)
class RaggedTensorSpec(TensorSpec):
    """Shape and dtype of a ragged tensor (`tf.RaggedTensorSpec`).

    Args:
        shape: As of a `TensorSpec`; None for sizes that differ.
        dtype: The dtype of the values.
        ragged_rank: How many axes, behind the first, may differ; None for all but the first. 0 is one row.
        row_splits_dtype: The dtype of `row_splits`.
        name: A name, for display only.

    Example:
        >>> RaggedTensorSpec((None, None), "int32").row().ragged_rank
        0
    """

    ragged_rank: int = 1
    row_splits_dtype: Any = np.int64

    def __init__(
        self,
        shape: Shape | None = None,
        dtype: Any = np.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = np.int64,
        name: str | None = None,
    ) -> None:
        super().__init__(shape, dtype, name)
        rank = ragged_rank if ragged_rank is not None else 1 if shape is None else len(shape) - 1
        kind = np.dtype(getattr(row_splits_dtype, "as_numpy_dtype", row_splits_dtype))
        object.__setattr__(self, "ragged_rank", rank)
        object.__setattr__(self, "row_splits_dtype", kind)

    def batched(self, size: int | None) -> TensorSpec:
        return replace(super().batched(size), ragged_rank=self.ragged_rank + 1)

    def row(self) -> TensorSpec:
        row = super().row()
        return replace(row, ragged_rank=self.ragged_rank - 1) if self.ragged_rank else TensorSpec(row.shape, row.dtype)


@dataclass(frozen=True)
class SparseTensorSpec(TensorSpec):
    """Shape and dtype of a sparse tensor (`tf.SparseTensorSpec`).

    Example:
        >>> SparseTensorSpec((None, 3), "int32").row().shape
        (3,)
    """


@dataclass(frozen=True)
class DatasetSpec:
    """What stands for a dataset among the components of an element (`tf.data.DatasetSpec`).

    Args:
        element_spec: The tree of `TensorSpec` of its elements.
    """

    element_spec: Any

    def batched(self, size: int | None) -> TensorSpec:
        """Raise: datasets cannot be joined into a batch."""
        raise datasets_in_batch()


def datasets_in_batch() -> InputError:
    """Return the error for a batch of datasets."""
    return InputError(
        "batch() was called on a dataset whose elements are datasets, such as window() makes.",
        "Datasets cannot be joined along an axis.",
        "Write dataset.window(size).flat_map(lambda window: window.batch(size)) first.",
    )


def spec_of(element: Tree) -> Tree:
    """Return the tree of `TensorSpec` of one element."""
    return map_leaves(TensorSpec.of, element)


def signature_of(types: Tree, shapes: Tree | None) -> Tree:
    """Return the tree of specs for tf.data's older way of writing them."""
    leaves, structure = flatten(types)
    given: list[Any]
    try:
        given = [None] * len(leaves) if shapes is None else structure.flatten_up_to(shapes)
    except ValueError as error:
        raise InputError(
            f"output_shapes does not nest like output_types: {error}.",
            "Give output_signature with one stratagem.data.TensorSpec for each component.",
        ) from None
    return structure.unflatten([TensorSpec(shape, dtype) for shape, dtype in zip(given, leaves, strict=True)])
