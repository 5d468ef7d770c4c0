"""`cache`: keeps what was read, so that a later pass neither reads nor calls functions of the user again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from stratagem.data.blocks import BatchBlock, Block, HeldBlock, VectorBlock, join
from stratagem.data.nodes import BlockStream, Key, Node, Stream
from stratagem.data.structure import Tree, map_leaves, stack


class Cache(Node):
    """The elements of the first complete pass, for every later pass.

    The input is always read with the key of iteration 0, also by a process that begins at a later iteration: what is
    cached is a function of the dataset, not of which pass came first. A pass that is broken off leaves nothing. A row
    is kept when this worker first reads it, so that each worker keeps only rows that it needed.
    """

    def __init__(self, inner: Node) -> None:
        super().__init__([inner])
        self._complete: Block | None = None

    def stream(self, key: Key) -> Stream:
        if self._complete is not None:
            return BlockStream(self._complete)
        return _RecordingStream(self.inputs[0].stream((0,)), self._keep)

    def with_inputs(self, inputs: Sequence[Node]) -> Self:
        other = super().with_inputs(inputs)
        other._complete = None
        return other

    def _keep(self, blocks: list[Block]) -> None:
        self._complete = join(blocks) if blocks else None


class _RecordingStream(Stream):
    def __init__(self, inner: Stream, keep: Callable[[list[Block]], None]) -> None:
        self._inner = inner
        self._keep = keep
        self._memory = _Memory()
        self._blocks: list[Block] = []

    def pull(self, rows: int) -> Block | None:
        block = self._inner.pull(rows)
        if block is None:
            self._keep(self._blocks)
            return None
        self._blocks.append(self._remembered(block))
        return self._blocks[-1]

    def _remembered(self, block: Block) -> Block:
        if block.rereadable:
            return block
        if isinstance(block, BatchBlock):
            # Rows, not whole batches: a worker reads only its share of each batch.
            return block.each(self._remembered)
        return self._memory.add(block)


class _Memory:
    """Rows of blocks, numbered in the order of `add`, each read at most once."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._starts = np.empty(0, np.intp)
        self._rows = 0
        self._elements = np.empty(0, object)
        self._known = np.empty(0, bool)
        # Two passes may read at once: one in a prefetch thread, one in a loop of the user.
        self._lock = threading.Lock()

    def add(self, block: Block) -> Block:
        """Return `block` with its rows remembered once they are read."""
        with self._lock:
            self._blocks.append(block)
            self._starts = np.append(self._starts, self._rows)
            index = np.arange(self._rows, self._rows + len(block))
            self._rows += len(block)
            if self._rows > len(self._known):
                more = self._rows - len(self._known) + self._rows
                self._elements = np.append(self._elements, np.empty(more, object))
                self._known = np.append(self._known, np.zeros(more, bool))
        return _RememberedBlock(self, index)

    def read(self, index: np.ndarray) -> list[Tree]:
        """Return the elements of these rows."""
        with self._lock:
            missing = np.unique(index[~self._known[index]])
            owner = np.searchsorted(self._starts, missing, side="right") - 1
            for k in np.unique(owner).tolist():
                rows = missing[owner == k]
                for row, element in zip(rows, self._blocks[k].select(rows - self._starts[k]).elements(), strict=True):
                    self._elements[row] = element
                self._known[rows] = True
            return self._elements[index].tolist()


class _RememberedBlock(VectorBlock):
    def elements(self) -> list[Tree]:
        # Copies: a function of the user that works in place must not change what later passes see.
        return [map_leaves(_copy, element) for element in self._origin.read(self._vector)]

    def gather(self) -> Tree:
        return stack(self._origin.read(self._vector))

    def portable(self) -> Block:
        return HeldBlock.of(self._origin.read(self._vector))


def _copy(leaf: Any) -> Any:
    return leaf if isinstance(leaf, bytes) else np.copy(leaf)
