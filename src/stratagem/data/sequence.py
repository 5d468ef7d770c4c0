"""Steps that choose which elements come, and when, of one dataset or of several: one class each, with its pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optree

from stratagem.core.errors import InputError, UsageError
from stratagem.data.blocks import Block, ColumnsBlock, ZipBlock, join
from stratagem.data.nodes import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Consecutive,
    FunctionStream,
    Key,
    Lookup,
    Node,
    Seeded,
    Stream,
    look_up_each,
    pull_exactly,
)
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree, component_names, flatten

SHARD_HINT = -1
"""`tf.data.experimental.SHARD_HINT`: stands for the number of workers, or this worker's index, in `shard`."""

_MOST_IN_VAIN = 1 << 20
"""Choices in a row of datasets that have ended, after which no other is expected."""


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


class Every(Node):
    """Every `step`-th element, from number `first` on."""

    def __init__(self, inner: Node, first: int, step: int = 1) -> None:
        super().__init__([inner])
        self._first = first
        self._step = step

    def stream(self, key: Key) -> Stream:
        return _EveryStream(self.inputs[0].stream(key), self._first, self._step)

    def lookup(self, key: Key) -> Lookup | None:
        inner = self.inputs[0].lookup(key)
        return inner and (lambda positions: inner(positions * self._step + self._first))

    def cardinality(self) -> int:
        elements = self.inputs[0].cardinality()
        return elements if elements < 0 else len(range(self._first, elements, self._step))


class _EveryStream(Stream):
    def __init__(self, inner: Stream, first: int, step: int) -> None:
        self._inner = inner
        self._before_next = first
        self._step = step

    def _go_to_next(self, rows: int) -> int:
        """Pass over what comes before the next element; return how far `rows` of them go."""
        self._inner.skip(self._before_next)
        self._before_next = self._step - 1
        return (rows - 1) * self._step + 1

    def pull(self, rows: int) -> Block | None:
        block = pull_exactly(self._inner, self._go_to_next(rows))
        return block if block is None or self._step == 1 else block.select(slice(None, None, self._step))

    def skip(self, rows: int) -> int:
        return -(-self._inner.skip(self._go_to_next(rows)) // self._step) if rows else 0


class Shard(Every):
    """Every `count`-th element, from number `index` on; or, with `SHARD_HINT`, a place for these numbers."""

    def __init__(self, inner: Node, count: int, index: int) -> None:
        super().__init__(inner, index, count)
        self.count = count
        self.index = index

    @property
    def is_hint(self) -> bool:
        """Whether the numbers are still to be filled in for a worker."""
        return self.count == SHARD_HINT

    def stream(self, key: Key) -> Stream:
        if self.is_hint:
            raise UsageError(
                "A dataset with shard(SHARD_HINT, SHARD_HINT) was read outside a strategy.",
                "Only a strategy can fill in the number of workers and the index of this one.",
                "Give it to strategy.experimental_distribute_dataset with AutoShardPolicy.HINT.",
            )
        return super().stream(key)

    def lookup(self, key: Key) -> Lookup | None:
        return None if self.is_hint else super().lookup(key)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality() if self.is_hint else super().cardinality()


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


class _RepeatStream(Consecutive):
    def __init__(self, node: Node, key: Key, count: int) -> None:
        self._node = node
        self._key = key
        self._count = count
        self._begun = 0

    def following(self, rows: int) -> Stream | None:
        # A repetition without elements ends the dataset, or repeat() of an empty dataset would never return.
        if self._begun == self._count or not self._gave:
            return None
        self._gave = False
        self._begun += 1
        return self._node.stream((*self._key, self._begun - 1))

    def skip(self, rows: int) -> int:
        skipped, length = self._present.skip(rows) if self._present else 0, self._node.cardinality()
        whole = (rows - skipped) // length if length > 0 else 0
        whole = whole if self._count < 0 else min(whole, self._count - self._begun)
        if whole:
            self._begun += whole
            skipped += whole * length
            self._present = None
        self._gave = self._gave or skipped > 0
        return skipped + super().skip(rows - skipped)


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
                "First convert them to the same tuples and dicts with dataset.map(...).",
            )
        return structure.unflatten([spec.merged(later) for spec, later in zip(first, second, strict=True)])


class _ConcatenateStream(Consecutive):
    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = iter(streams)

    def following(self, rows: int) -> Stream | None:
        return next(self._streams, None)


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


class RandomNumbers(Seeded):
    """Numbers 0 ... n - 1 for ever, each with its probability.

    Args:
        weights: How likely each number is, up to a factor; above 0.
        seed: See `Seeded`.
        redraw: Whether each iteration and repetition has numbers of its own.
    """

    def __init__(self, weights: Sequence[float], seed: int | None, redraw: bool) -> None:
        super().__init__([], seed)
        self._ends = np.cumsum(weights) / np.sum(weights)
        self._redraw = redraw

    def stream(self, key: Key) -> Stream:
        bits = self.bits(key if self._redraw else ())

        def pull(rows: int) -> Block:
            drawn = (np.atleast_1d(bits.random_raw(rows)) >> np.uint64(11)) * 2.0**-53
            return ColumnsBlock(np.searchsorted(self._ends[:-1], drawn, side="right").astype(np.int64))

        return FunctionStream(pull)

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def _make_spec(self) -> Tree:
        return TensorSpec((), np.int64)


class RandomBits(Seeded):
    """Random int64 numbers below 2**32 for ever.

    Args:
        seed: See `Seeded`.
        redraw: Whether each iteration and repetition has numbers of its own.
    """

    def __init__(self, seed: int | None, redraw: bool) -> None:
        super().__init__([], seed)
        self._redraw = redraw

    def stream(self, key: Key) -> Stream:
        bits = self.bits(key if self._redraw else ())

        def pull(rows: int) -> Block:
            return ColumnsBlock((np.atleast_1d(bits.random_raw(rows)) >> np.uint64(32)).astype(np.int64))

        return FunctionStream(pull)

    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def _make_spec(self) -> Tree:
        return TensorSpec((), np.int64)


class Choose(Node):
    """The next element of the dataset that each choice names.

    Args:
        choices: int64 numbers.
        datasets: What they choose from.
        stop_on_empty: Whether all ends where a dataset is chosen that has ended. Otherwise such choices are left out.
    """

    def __init__(self, choices: Node, datasets: Sequence[Node], stop_on_empty: bool) -> None:
        super().__init__([choices, *datasets])
        self._stop_on_empty = stop_on_empty

    def stream(self, key: Key) -> Stream:
        choices, *datasets = [node.stream(key) for node in self.inputs]
        return _ChooseStream(choices, datasets, self._stop_on_empty)

    def cardinality(self) -> int:
        choices, *lengths = [node.cardinality() for node in self.inputs]
        if all(length == INFINITE_CARDINALITY for length in lengths):
            return choices
        if self._stop_on_empty or choices != INFINITE_CARDINALITY or UNKNOWN_CARDINALITY in lengths:
            return UNKNOWN_CARDINALITY
        return INFINITE_CARDINALITY if INFINITE_CARDINALITY in lengths else sum(lengths)

    def _make_spec(self) -> Tree:
        return self.inputs[1].spec


class _ChooseStream(Stream):
    def __init__(self, choices: Stream, datasets: Sequence[Stream], stop_on_empty: bool) -> None:
        self._choices = choices
        self._datasets = datasets
        self._stop_on_empty = stop_on_empty
        self._live = set(range(len(datasets)))
        self._ended = False

    def pull(self, rows: int) -> Block | None:
        in_vain = 0
        while not self._ended and in_vain < _MOST_IN_VAIN:
            chosen = self._choices.pull(rows)
            self._ended = chosen is None
            block = chosen and self._follow(self._numbers(chosen))
            self._ended = self._ended or not self._live
            if block:
                return block
            in_vain += rows
        if self._ended:
            return None
        raise InputError(
            f"{in_vain} choices in a row named datasets that have ended, but dataset {min(self._live)} has not ended.",
            "The dataset would continue forever without another element.",
            "Write stop_on_empty_dataset=True, or let the choices name every dataset again and again.",
        )

    def _numbers(self, chosen: Block) -> np.ndarray:
        numbers = np.asarray(chosen.gather())
        count = len(self._datasets)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not ((numbers >= 0) & (numbers < count)).all():
            raise InputError(
                f"choice_dataset has {numbers.tolist()[:9]}, of dtype {numbers.dtype}; there are {count} datasets.",
                f"Give it int64 numbers from 0 to {count - 1}.",
            )
        return numbers

    def _follow(self, numbers: np.ndarray) -> Block | None:
        """Return an element for each number, or fewer where a dataset has ended."""
        blocks, places = [], []
        for number in np.unique(numbers).tolist():
            wanted = np.flatnonzero(numbers == number)
            block = pull_exactly(self._datasets[number], len(wanted)) if number in self._live else None
            found = 0 if block is None else len(block)
            if found < len(wanted):
                self._live.discard(number)
                if self._stop_on_empty:
                    self._ended = True
                    numbers = numbers[: wanted[found]]
            if block:
                blocks.append(block)
                places.append(wanted[:found])
        if not blocks:
            return None
        place = np.concatenate(places)
        order = np.argsort(place)
        return join(blocks).select(order[place[order] < len(numbers)]) if (place < len(numbers)).any() else None
