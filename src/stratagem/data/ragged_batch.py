"""`ragged_batch`: batches whose rows differ in length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stratagem.data.blocks import BatchBlock, Block, HeldBlock
from stratagem.data.nodes import DerivedStream, Key, Node, Stream, walk
from stratagem.data.ragged import RaggedTensor
from stratagem.data.specs import RaggedTensorSpec, TensorSpec
from stratagem.data.structure import Tree, flatten, map_leaves, stack
from stratagem.data.transforms import Map, Unbatch


class RaggedBatched(Node):
    """Batches whose rows may differ in their first size. Every worker reads all rows.

    Args:
        batches: The batches, as `Batched` makes them.
    """

    in_memory = False

    def __init__(self, batches: Node) -> None:
        super().__init__([batches])

    def stream(self, key: Key) -> Stream:
        return DerivedStream(self.inputs[0].stream(key), self._joined)

    def _joined(self, batches: Block) -> Block:
        assert isinstance(batches, BatchBlock)
        return HeldBlock.of([self._batch(batch.elements()) for batch in batches.parts])

    def _batch(self, rows: Sequence[Tree]) -> Tree:
        first, structure = flatten(rows[0])
        flat = [flatten(row) for row in rows]
        if any(other != structure for _, other in flat):
            return stack(rows)  # says how they differ
        columns = zip(*(leaves for leaves, _ in flat), strict=True)
        specs = flatten(Unbatch([self.inputs[0]]).spec)[0]
        return structure.unflatten(
            [
                RaggedTensor.stacked(column) if np.ndim(leaf) and self._varies(spec) else stack(column)
                for leaf, spec, column in zip(first, specs, columns, strict=True)
            ]
        )

    def _varies(self, spec: TensorSpec) -> bool:
        # What a function returns is known from the first element only: the next may be longer.
        made = any(isinstance(step, Map) for step in walk(self))
        return made or spec.shape is None or None in spec.shape

    def _make_spec(self) -> Tree:
        return map_leaves(self._spec_of_rows, self.inputs[0].spec)

    def _spec_of_rows(self, spec: TensorSpec) -> TensorSpec:
        if spec.shape is None or len(spec.shape) < 2 or not self._varies(spec.row()):
            return spec
        return RaggedTensorSpec((spec.shape[0], None, *spec.shape[2:]), spec.dtype, 1)
