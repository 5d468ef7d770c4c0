"""Datasets made from elements, such as file names, and read in turn (`tf.data.Dataset.interleave`).

tf.data's rule: there are `cycle_length` slots. A turn takes `block_length` elements of one slot; then it is the next
slot's. A slot whose dataset has ended is left at once; when its turn comes again it takes the next dataset.

Whole rounds through the slots, as long as no dataset ends, are one permutation of row numbers; only turns near the end
of a dataset are taken one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Self

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.blocks import Block, join
from stratagem.data.lru import Recent
from stratagem.data.nodes import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    BlockStream,
    Key,
    Node,
    Seeded,
    Stream,
    elements_of,
    pull_exactly,
    settled,
)
from stratagem.data.structure import Tree, flatten

DEFAULT_CYCLE_LENGTH = 16
"""tf.data takes the number of cores, but then the order would depend on the machine."""

_MOST_PARTS = 4096
"""Datasets that are remembered, so that a file is scanned once and not for every pass."""

_ROWS_AHEAD = 4096
"""Rows woven at once when that reads nothing: a batch of 64 rows of 16 files then costs one selection, not 64."""


class Interleave(Seeded):
    """Datasets made from the elements of another, read in turn.

    A shuffle without a seed inside of these datasets gets one that depends on this step's, so that all workers shuffle
    alike.

    Args:
        inner: The elements, such as file names.
        function: Makes a dataset's last step from an element. Called once for an element that is bytes.
        cycle_length: Datasets to read in turn.
        block_length: Elements of one dataset at a time.
        parallel_calls: How many batches may be read at the same time.
    """

    in_memory = False

    def __init__(
        self,
        inner: Node,
        function: Callable[[Tree], Node],
        cycle_length: int,
        block_length: int,
        parallel_calls: int = 1,
    ) -> None:
        super().__init__([inner], None)
        self.parallel_calls = parallel_calls
        self._function = function
        self.cycle_length = cycle_length
        self.block_length = block_length
        self._made: Recent[Node] = Recent(_MOST_PARTS)

    def with_seed(self, seed: int) -> Self:
        other = super().with_seed(seed)
        other._made = Recent(_MOST_PARTS)
        return other

    def stream(self, key: Key) -> Stream:
        # Each dataset has a key of its own: equally long files that are shuffled with one seed differ in their order.
        # No generator, which an error in one of them would end: `ignore_errors` goes on to the next.
        parts = map(lambda number, node: _Part(node, (*key, number)), itertools.count(), self._parts(key))
        return _InterleaveStream(parts, self.cycle_length, self.block_length)

    def cardinality(self) -> int:
        count = self.inputs[0].cardinality()
        if count == UNKNOWN_CARDINALITY or count > _MOST_PARTS:
            return UNKNOWN_CARDINALITY
        total = 0
        for part in self.parts():
            elements = part.cardinality()
            if elements > 0 and count == INFINITE_CARDINALITY:
                return INFINITE_CARDINALITY
            if elements < 0 or count < 0:
                return elements if elements < 0 else UNKNOWN_CARDINALITY
            total += elements
        return total

    def parts(self) -> Iterator[Node]:
        """Yield the datasets of the first pass."""
        return self._parts((0,))

    def _parts(self, key: Key) -> Iterator[Node]:
        return map(self._part, elements_of(self.inputs[0].stream(key)))

    def _part(self, element: Tree) -> Node:
        names = tuple(flatten(element)[0])
        if all(isinstance(name, bytes) for name in names):
            return self._made.get(names, lambda: self._make(element))
        return self._make(element)

    def _make(self, element: Tree) -> Node:
        return settled(self._function(element), self.seed)

    def _make_spec(self) -> Tree:
        for part in self.parts():
            return part.spec
        raise InputError(
            "The dataset given to interleave or flat_map is empty.",
            "Give it a dataset with at least one element, such as a file name.",
        )


class _Part:
    """One of the datasets that are read in turn, with what was read ahead of it."""

    def __init__(self, node: Node, key: Key) -> None:
        self._stream = node.stream(key)
        length = node.cardinality()
        self.is_known = length != UNKNOWN_CARDINALITY
        self._left = 1 << 62 if length == INFINITE_CARDINALITY else length
        self._read: Block | None = None

    def ahead(self, rows: int) -> int:
        """Return how many of the next `rows` elements there are. Reads them where only reading can tell."""
        if self.is_known:
            return min(rows, self._left)
        have = 0 if self._read is None else len(self._read)
        if have < rows and (more := pull_exactly(self._stream, rows - have)) is not None:
            self._read = more if self._read is None else join([self._read, more])
            have = len(self._read)
        return min(rows, have)

    def take(self, rows: int) -> Block:
        """Return the next `rows` elements, which `ahead` has found."""
        if self._read is not None:
            block, rest = self._read.select(slice(rows)), self._read.select(slice(rows, None))
            self._read = rest if len(rest) else None
            return block
        self._left -= rows
        block = pull_exactly(self._stream, rows)
        assert block is not None
        return block

    def skip(self, rows: int) -> None:
        """Pass over the next `rows` elements, which `ahead` has found."""
        if self._read is not None:
            self.take(rows)
        else:
            self._left -= rows
            self._stream.skip(rows)


class _InterleaveStream(Stream):
    def __init__(self, parts: Iterator[_Part], cycle_length: int, block_length: int) -> None:
        self._parts = parts
        self._parts_ended = False
        self._slots: list[_Part | None] = [None] * cycle_length
        self._slot = 0
        self._block_length = block_length
        self._left_in_turn = block_length
        self._woven: Stream | None = None

    def pull(self, rows: int) -> Block | None:
        block = self._woven.pull(rows) if self._woven else None
        if block is not None:
            return block
        costs_nothing = all(part.is_known for part in self._open())
        if rounds := self._rounds(max(rows, _ROWS_AHEAD) if costs_nothing else rows):
            self._woven = BlockStream(self._weave(rounds))
            return self._woven.pull(rows)
        part, count = self._turn(rows)
        return part.take(count) if part else None

    def skip(self, rows: int) -> int:
        skipped = self._woven.skip(rows) if self._woven else 0
        while skipped < rows:
            if rounds := self._rounds(rows - skipped):
                parts, count = self._open(), rounds * self._block_length
            else:
                part, count = self._turn(rows - skipped)
                parts = [part] if part else []
            if not parts:
                break
            for part in parts:
                part.skip(count)
            skipped += len(parts) * count
        return skipped

    def _open(self) -> list[_Part]:
        """Return the datasets that are being read, beginning with the one whose turn it is."""
        return [part for part in self._slots[self._slot :] + self._slots[: self._slot] if part]

    def _rounds(self, rows: int) -> int:
        """Return how many whole rounds of turns come next, within `rows` elements, before any dataset ends."""
        parts = self._open()
        settled = len(parts) == len(self._slots) or self._parts_ended
        if not parts or not settled or self._left_in_turn < self._block_length:
            return 0
        rounds = rows // (len(parts) * self._block_length)
        for part in parts:
            rounds = part.ahead(rounds * self._block_length) // self._block_length if rounds else 0
        return rounds

    def _weave(self, rounds: int) -> Block:
        parts = self._open()
        whole = join([part.take(rounds * self._block_length) for part in parts])
        order = np.arange(len(whole)).reshape(len(parts), rounds, self._block_length).swapaxes(0, 1)
        return whole.select(order.ravel())

    def _turn(self, rows: int) -> tuple[_Part | None, int]:
        """Return the dataset whose turn it is, and how many of at most `rows` elements it gives; None at the end."""
        while True:
            part = self._slots[self._slot]
            if part is None and not self._parts_ended:
                part = self._slots[self._slot] = next(self._parts, None)
                self._parts_ended = part is None
            if part is None and not self._open():
                return None, 0
            if part is not None and (count := part.ahead(min(rows, self._left_in_turn))):
                self._left_in_turn -= count
                if not self._left_in_turn:
                    self._next_slot()
                return part, count
            self._slots[self._slot] = None
            self._next_slot()

    def _next_slot(self) -> None:
        self._slot = (self._slot + 1) % len(self._slots)
        self._left_in_turn = self._block_length
