"""Batches of elements that differ in shape (`tf.data.Dataset.padded_batch`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.blocks import BatchBlock, Block, ColumnsBlock, MapBlock
from stratagem.data.nodes import DerivedStream, Key, Node, Stream
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree, component_names, flatten, map_leaves


@dataclass(frozen=True)
class Padding:
    """To which shapes elements are filled up, and with what.

    Args:
        shapes: Tree of shapes, one for each component; a size that is None or -1 is the largest of the batch. None
            stands for such a size everywhere.
        values: Tree of numbers; or one for all components; None stands for zero.
    """

    shapes: Any
    values: Any

    @property
    def is_known(self) -> bool:
        """Whether the shapes do not depend on the other elements of a batch."""
        return _is_known(self.shapes)

    def columns(self, elements: Sequence[Tree]) -> Tree:
        """Return elements, all filled up to one shape, joined along a new leading axis.

        Raises:
            InputError: They are built differently, differ in rank, or do not fit into the shapes.
        """
        _, structure = flatten(elements[0])
        names = component_names(elements[0])
        try:
            shapes = [None] * len(names) if self.shapes is None else structure.flatten_up_to(self.shapes)
            nested = type(self.values) in (dict, tuple)
            values = structure.flatten_up_to(self.values) if nested else [self.values] * len(names)
            rows = [structure.flatten_up_to(element) for element in elements]
        except ValueError as error:
            raise InputError(
                f"padded_batch met elements, padded_shapes or padding_values that nest differently: {error}.",
                f"Nest all of them alike; an element here has the components {', '.join(names)}.",
            ) from None
        leaves = zip(names, zip(*rows, strict=True), shapes, values, strict=True)
        return structure.unflatten([_padded(*leaf) for leaf in leaves])

    def one(self, element: Tree) -> Tree:
        """Return one element filled up, where `is_known`."""
        return map_leaves(lambda column: column[0], self.columns([element]))

    def spec(self, element: Tree, size: int | None) -> Tree:
        """Return the spec of a batch, given that of an element."""
        leaves, structure = flatten(element)
        shapes = [None] * len(leaves) if self.shapes is None else structure.flatten_up_to(self.shapes)
        out = []
        for leaf, shape in zip(leaves, shapes, strict=True):
            # A size that is known of the first element only may be another of the next.
            sizes = [None] * len(leaf.shape) if shape is None else _sizes(shape)
            out.append(TensorSpec((size, *sizes), leaf.dtype, leaf.name))
        return structure.unflatten(out)


def _is_known(shape: Any) -> bool:
    if isinstance(shape, dict):
        return all(_is_known(part) for part in shape.values())
    if shape is None or isinstance(shape, int | np.integer):
        return shape is not None and bool(shape >= 0)
    return all(_is_known(part) for part in shape)


def _sizes(shape: Any) -> list[int | None]:
    return [None if size is None or size < 0 else int(size) for size in shape]


def _padded(name: str, arrays: Sequence[Any], shape: Any, value: Any) -> np.ndarray:
    if isinstance(arrays[0], bytes):
        column = np.empty(len(arrays), object)
        column[:] = arrays
        return column
    sizes = [None] * np.ndim(arrays[0]) if shape is None else _sizes(shape)
    ranks = {np.ndim(array) for array in arrays}
    if ranks != {len(sizes)}:
        raise InputError(
            f"Component {name} has elements with {' and '.join(map(str, sorted(ranks)))} axes, padded to {sizes}.",
            "Write padded_shapes with one size (or None) for each axis of an element, without the batch.",
        )
    largest = np.max([np.shape(array) for array in arrays], axis=0).tolist()
    full = [most if size is None else size for most, size in zip(largest, sizes, strict=True)]
    if any(most > size for most, size in zip(largest, full, strict=True)):
        raise InputError(
            f"Component {name} has an element of a size of {largest}, padded_shapes says {full}.",
            "Write larger padded_shapes, None for the largest of a batch, or cut the elements with map.",
        )
    dtype = arrays[0].dtype
    fill = value if value is not None else b"" if dtype.hasobject else np.zeros((), dtype)
    column = np.full((len(arrays), *full), fill, dtype)
    for row, array in enumerate(arrays):
        column[(row, *map(slice, np.shape(array)))] = array
    return column


class Padded(Node):
    """Batches with their rows filled up to one shape.

    Args:
        batches: The batches, as `Batched` makes them.
        padding: The shapes.
        size: Rows of a batch, None where the last may have fewer.
    """

    in_memory = False  # filling up is Python's work, row by row

    def __init__(self, batches: Node, padding: Padding, size: int | None) -> None:
        super().__init__([batches])
        self._padding = padding
        self._size = size

    def stream(self, key: Key) -> Stream:
        return DerivedStream(self.inputs[0].stream(key), self._padded)

    def _padded(self, batches: Block) -> Block:
        assert isinstance(batches, BatchBlock)
        return batches.each(self._filled_up)

    def _filled_up(self, batch: Block) -> Block:
        if self._padding.is_known:
            return MapBlock(self._padding.one, batch)
        # The shape is that of the largest row, so every worker reads all of them.
        return ColumnsBlock(self._padding.columns(batch.elements()))

    def _make_spec(self) -> Tree:
        return self._padding.spec(self.inputs[0].inputs[0].spec, self._size)
