"""Buckets of elements of similar length (`tf.data.Dataset.bucket_by_sequence_length`)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.structure import Tree, flatten


class Buckets(NamedTuple):
    """Which bucket an element belongs to, and how the elements of one are joined. Fields as in the operation."""

    length_of: Callable[..., Any]
    boundaries: Sequence[int]
    sizes: Sequence[int]
    padded_shapes: Any
    padding_values: Any
    to_boundary: bool
    no_padding: bool
    drop_remainder: bool

    def check(self) -> None:
        """Check that the numbers fit together."""
        boundaries, sizes = list(map(int, self.boundaries)), list(map(int, self.sizes))
        if len(sizes) != len(boundaries) + 1 or boundaries != sorted(set(boundaries)):
            raise InputError(
                f"bucket_boundaries is {boundaries}, bucket_batch_sizes is {sizes}.",
                "Write increasing boundaries, and one more size than boundaries. The last size is for elements as "
                "long as the last boundary, or longer.",
            )

    def number(self, *element: Tree) -> np.int64:
        """Return the number of the bucket of an element."""
        return np.int64(bisect.bisect_right(list(self.boundaries), int(np.asarray(self.length_of(*element)))))

    def size(self, number: np.int64) -> int:
        """Return how many elements a batch of a bucket has."""
        return int(self.sizes[int(number)])

    def batches(self, number: np.int64, elements: Any) -> Any:
        """Return the dataset of the elements of a bucket, joined."""
        size = self.size(number)
        if self.no_padding:
            return elements.batch(size, self.drop_remainder)
        shapes = self._filled(number, elements) if self.to_boundary else self.padded_shapes
        return elements.padded_batch(size, shapes, self.padding_values, self.drop_remainder)

    def _filled(self, number: np.int64, elements: Any) -> Tree:
        """Return the shapes, with the boundary of a bucket in place of sizes that are None."""
        if number == len(self.boundaries):
            raise InputError(
                f"An element is as long as the last of bucket_boundaries, {self.boundaries[-1]}, or longer.",
                "With pad_to_bucket_boundary=True there is no length to pad it to.",
                "Write a larger last boundary, or filter such elements out.",
            )
        specs, structure = flatten(elements.element_spec)
        shapes = [spec.shape for spec in specs]
        if self.padded_shapes is not None:
            shapes = structure.flatten_up_to(self.padded_shapes)
        if not any(size in (None, -1) for shape in shapes for size in shape or ()):
            raise InputError(
                f"pad_to_bucket_boundary=True was given, but none of the sizes in {shapes} is None.",
                "The axis that varies in length follows from padded_shapes, or from a generator's signature.",
                "Write padded_shapes, nested like an element, with None for the axis that varies.",
            )
        full = int(self.boundaries[int(number)]) - 1
        return structure.unflatten([[full if size in (None, -1) else size for size in shape] for shape in shapes])
