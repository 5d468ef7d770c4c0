"""Steps that choose which elements come, and when: one class each, with its pass beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optree

from stratagem.core.errors import InputError, UsageError
from stratagem.data.blocks import Block, ZipBlock
from stratagem.data.nodes import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Key,
    Lookup,
    Node,
    Stream,
    look_up_each,
    pull_exactly,
)
from stratagem.data.structure import Tree, component_names, flatten

SHARD_HINT = -1
"""`tf.data.experimental.SHARD_HINT`: stands for the number of workers, or this worker's index, in `shard`."""


class Take(Node):
    """The first `count` elements."""

    def __init__(self, inner: Node, count: int) -> None:
        super().__init__([inner])
        self._count = count

    def stream(self, key: Key) -> Stream:
        return _TakeStream(self.inputs[0].stream(key), self._count)

    def lookup(self, key: Key) -> Lookup | None:
        return self.inputs[0].lookup(key)

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        return self._count if elements == INFINITE_CARDINALITY else min(elements, self._count)


class _TakeStream(Stream):
    def __init__(self, inner: Stream, count: int) -> None:
        self._inner = inner
        self._left = count

    def pull(self, rows: int) -> Block | None:
        block = self._inner.pull(min(rows, self._left)) if self._left else None
        self._left -= 0 if block is None else len(block)
        return block

    def skip(self, rows: int) -> int:
        skipped = self._inner.skip(min(rows, self._left))
        self._left -= skipped
        return skipped


class Skip(Node):
    """All but the first `count` elements."""

    def __init__(self, inner: Node, count: int) -> None:
        super().__init__([inner])
        self._count = count

    def stream(self, key: Key) -> Stream:
        inner = self.inputs[0].stream(key)
        inner.skip(self._count)
        return inner

    def lookup(self, key: Key) -> Lookup | None:
        inner = self.inputs[0].lookup(key)
        return inner and (lambda positions: inner(positions + self._count))

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        return elements if elements < 0 else max(0, elements - self._count)


class Shard(Node):
    """Every `count`-th element, from number `index` on."""

    def __init__(self, inner: Node, count: int, index: int) -> None:
        super().__init__([inner])
        self.count = count
        self.index = index

    @property
    def is_hint(self) -> bool:
        """Whether the numbers are still to be filled in for a worker."""
        return self.count == SHARD_HINT

    def resolved(self, count: int, index: int) -> Shard:
        """Return the step with the numbers filled in."""
        return Shard(self.inputs[0], count, index)

    def stream(self, key: Key) -> Stream:
        if self.is_hint:
            raise UsageError(
                "A dataset with shard(SHARD_HINT, SHARD_HINT) was read outside a strategy.",
                "Nobody filled in the number of workers and the index of this one.",
                "Give it to strategy.experimental_distribute_dataset with AutoShardPolicy.HINT.",
            )
        return _ShardStream(self.inputs[0].stream(key), self.count, self.index)

    def lookup(self, key: Key) -> Lookup | None:
        inner = None if self.is_hint else self.inputs[0].lookup(key)
        return inner and (lambda positions: inner(positions * self.count + self.index))

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements < 0 or self.is_hint:
            return elements
        return len(range(self.index, elements, self.count))


class _ShardStream(Stream):
    def __init__(self, inner: Stream, count: int, index: int) -> None:
        self._inner = inner
        self._count = count
        self._index = index

    def pull(self, rows: int) -> Block | None:
        block = pull_exactly(self._inner, rows * self._count)
        if block is None or len(block) <= self._index:
            return None
        return block.select(slice(self._index, None, self._count))

    def skip(self, rows: int) -> int:
        return len(range(self._index, self._inner.skip(rows * self._count), self._count))


class Repeat(Node):
    """The dataset `count` times over; -1 for ever. Each time is a pass of its own key."""

    def __init__(self, inner: Node, count: int) -> None:
        super().__init__([inner])
        self._count = count

    def stream(self, key: Key) -> Stream:
        return _RepeatStream(self.inputs[0], key, self._count)

    def lookup(self, key: Key) -> Lookup | None:
        length = self.inputs[0].cardinality()
        if length <= 0 or self.inputs[0].lookup((*key, 0)) is None:
            return None

        def repetition(number: int) -> Lookup:
            lookup = self.inputs[0].lookup((*key, number))
            assert lookup is not None, "whether a step has one does not depend on the key"
            return lookup

        return lambda positions: look_up_each(positions // length, positions % length, repetition)

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        if elements == 0 or self._count == 0:
            return 0
        if self._count < 0:
            return INFINITE_CARDINALITY
        return elements if elements < 0 else elements * self._count


class _RepeatStream(Stream):
    def __init__(self, node: Node, key: Key, count: int) -> None:
        self._node = node
        self._key = key
        self._count = count
        self._repetition = -1
        self._inner: Stream | None = None
        self._was_empty = False
        self._begin(0)

    def _begin(self, repetition: int) -> None:
        # A repetition without elements ends the dataset, or repeat() of an empty dataset would never return.
        ended = self._was_empty or repetition == self._count
        self._repetition = repetition
        self._inner = None if ended else self._node.stream((*self._key, repetition))
        self._was_empty = True

    def pull(self, rows: int) -> Block | None:
        while self._inner is not None:
            block = self._inner.pull(rows)
            if block is not None:
                self._was_empty = False
                return block
            self._begin(self._repetition + 1)
        return None

    def skip(self, rows: int) -> int:
        skipped = 0
        while skipped < rows and self._inner is not None:
            if self._was_empty and (whole := self._whole_repetitions(rows - skipped)):
                skipped += whole * self._node.cardinality()
                self._was_empty = False
                self._begin(self._repetition + whole)
                continue
            step = self._inner.skip(rows - skipped)
            skipped += step
            self._was_empty = self._was_empty and not step
            if skipped < rows:
                self._begin(self._repetition + 1)
        return skipped

    def _whole_repetitions(self, rows: int) -> int:
        """Return how many repetitions of known length, from the start of the present one, fit into `rows`."""
        length = self._node.cardinality()
        if length <= 0:
            return 0
        fit = rows // length
        return fit if self._count < 0 else min(fit, self._count - self._repetition)


def _lookups(nodes: Sequence[Node], key: Key) -> list[Lookup] | None:
    """Return how to reach the elements of each, None unless all can tell."""
    lookups = [lookup for node in nodes if (lookup := node.lookup(key)) is not None]
    return lookups if len(lookups) == len(nodes) else None


class Concatenate(Node):
    """The elements of one dataset, then those of another."""

    def __init__(self, first: Node, second: Node) -> None:
        super().__init__([first, second])

    def stream(self, key: Key) -> Stream:
        return _ConcatenateStream([node.stream(key) for node in self.inputs])

    def lookup(self, key: Key) -> Lookup | None:
        lookups, first = _lookups(self.inputs, key), self.inputs[0].cardinality()
        if lookups is None or first < 0:
            return None

        def look_up(positions: np.ndarray) -> Block:
            part = (positions >= first).astype(np.intp)
            return look_up_each(part, positions - first * part, lookups.__getitem__)

        return look_up

    def cardinality(self) -> int:
        lengths = [node.cardinality() for node in self.inputs]
        if INFINITE_CARDINALITY in lengths:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in lengths else sum(lengths)

    def _make_spec(self) -> Tree:
        (first, structure), (second, other) = (flatten(node.spec) for node in self.inputs)
        if structure != other:
            names = " and ".join(", ".join(component_names(node.spec)) for node in self.inputs)
            raise InputError(
                f"concatenate got datasets whose elements are built differently: {names}.",
                "Bring them to the same tuples and dicts first, with dataset.map(...).",
            )
        return structure.unflatten([spec.merged(later) for spec, later in zip(first, second, strict=True)])


class _ConcatenateStream(Stream):
    def __init__(self, streams: Sequence[Stream]) -> None:
        self._left = list(streams)

    def pull(self, rows: int) -> Block | None:
        while self._left:
            block = self._left[0].pull(rows)
            if block is not None:
                return block
            self._left.pop(0)
        return None

    def skip(self, rows: int) -> int:
        skipped = 0
        while self._left:
            skipped += self._left[0].skip(rows - skipped)
            if skipped == rows:
                break
            self._left.pop(0)
        return skipped


class Zip(Node):
    """Elements of several datasets side by side, as long as the shortest.

    Args:
        structure: How the datasets nest in a tuple or dict.
        inner: The datasets, in the order of its leaves.
    """

    def __init__(self, structure: optree.PyTreeSpec, inner: Sequence[Node]) -> None:
        super().__init__(inner)
        self._structure = structure

    def stream(self, key: Key) -> Stream:
        return _ZipStream(self._structure, [node.stream(key) for node in self.inputs])

    def lookup(self, key: Key) -> Lookup | None:
        lookups = _lookups(self.inputs, key)
        if lookups is None:
            return None
        return lambda positions: ZipBlock(self._structure, *(look_up(positions) for look_up in lookups))

    def cardinality(self) -> int:
        lengths = [node.cardinality() for node in self.inputs]
        if UNKNOWN_CARDINALITY in lengths:
            return UNKNOWN_CARDINALITY
        return min((length for length in lengths if length >= 0), default=INFINITE_CARDINALITY)

    def _make_spec(self) -> Tree:
        return self._structure.unflatten([node.spec for node in self.inputs])


class _ZipStream(Stream):
    def __init__(self, structure: optree.PyTreeSpec, streams: Sequence[Stream]) -> None:
        self._structure = structure
        self._streams = streams
        self._ended = False

    def pull(self, rows: int) -> Block | None:
        blocks: list[Block] = []
        for stream in () if self._ended else self._streams:
            # A later component is asked for no more than the earlier ones have.
            block = pull_exactly(stream, len(blocks[-1]) if blocks else rows)
            if block is None:
                self._ended = True
                return None
            blocks.append(block)
        if not blocks:
            return None
        shortest = len(blocks[-1])
        self._ended = shortest < rows
        return ZipBlock(self._structure, *(block.select(slice(shortest)) for block in blocks))

    def skip(self, rows: int) -> int:
        skipped = 0 if self._ended else min(stream.skip(rows) for stream in self._streams)
        self._ended = skipped < rows
        return skipped
