"""The contract of one step of a pipeline, and the graph that the steps form.

A `Node` is immutable and describes; a `Stream` is one pass over it. The order of a pass is a function of the node
and of the pass's *key* alone: the iteration, followed by one number for each `repeat` and `interleave` that the pass is
inside of.
"""

from __future__ import annotations

import copy
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import Self, TypeVar

import numpy as np

from stratagem.data.blocks import Block, HeldBlock, join
from stratagem.data.structure import Tree, by_part

INFINITE_CARDINALITY = -1
"""`cardinality()` of a dataset that never ends."""

UNKNOWN_CARDINALITY = -2
"""`cardinality()` of a dataset whose length only a pass can tell."""

Key = tuple[int, ...]

Item = TypeVar("Item")

Lookup = Callable[[np.ndarray], Block]
"""Returns the elements at some positions of a pass, each at least 0 and below the cardinality. Reads nothing."""

_CHUNK = 1 << 16


class Stream(ABC):
    """One pass over a dataset. It ends once, and stays ended."""

    @abstractmethod
    def pull(self, rows: int) -> Block | None:
        """Return the next elements, at least one and at most `rows`, or None at the end.

        Reads from its inputs no more than it needs for these elements.
        """

    def skip(self, rows: int) -> int:
        """Pass over `rows` elements without reading them; return how many there were."""
        skipped = 0
        while skipped < rows and (block := self.pull(min(rows - skipped, _CHUNK))) is not None:
            skipped += len(block)
        return skipped


class PositionStream(Stream):
    """Elements that can be reached at any position.

    Args:
        length: How many there are.
        between: Returns those from one position up to another, at least one.
    """

    def __init__(self, length: int, between: Callable[[int, int], Block]) -> None:
        self._length = length
        self._between = between
        self._next = 0

    def pull(self, rows: int) -> Block | None:
        start, count = self._next, self.skip(rows)
        return self._between(start, start + count) if count else None

    def skip(self, rows: int) -> int:
        skipped = min(rows, self._length - self._next)
        self._next += skipped
        return skipped


class BlockStream(PositionStream):
    """The rows of a block."""

    def __init__(self, block: Block) -> None:
        super().__init__(len(block), lambda start, end: block.select(slice(start, end)))


class FunctionStream(Stream):
    """A pass of which one function tells all.

    Args:
        pull: See `Stream.pull`.
    """

    def __init__(self, pull: Callable[[int], Block | None]) -> None:
        self._pull = pull

    def pull(self, rows: int) -> Block | None:
        return self._pull(rows)


class Lasting(Iterator[Item]):
    """An iterator that an error does not end: each further step raises it again.

    A generator that has raised ends as if it had no more elements, and what ignores errors would not notice.

    Args:
        inner: The iterator.
    """

    def __init__(self, inner: Iterator[Item]) -> None:
        self._inner = inner
        self._error: Exception | None = None

    def __next__(self) -> Item:
        if self._error is not None:
            raise self._error
        try:
            return next(self._inner)
        except StopIteration:
            raise
        except Exception as error:
            if isinstance(self._inner, Generator):  # others can go on
                self._error = error
            raise


def stream_of(elements: Iterator[Tree]) -> Stream:
    """Return a pass over elements that come one after another only."""

    def pull(rows: int) -> Block | None:
        held = list(itertools.islice(elements, rows))
        return HeldBlock.of(held) if held else None

    return FunctionStream(pull)


class Consecutive(Stream):
    """Passes that come one after another."""

    _present: Stream | None = None
    _gave = True
    """Whether an element came since a subclass set this to False."""

    @abstractmethod
    def following(self, rows: int) -> Stream | None:
        """Return the next pass, where at least `rows` more elements are wanted; None at the end."""

    def pull(self, rows: int) -> Block | None:
        while True:
            block = self._present.pull(rows) if self._present else None
            if block is not None:
                self._gave = True
                return block
            self._present = self.following(rows)
            if self._present is None:
                return None

    def skip(self, rows: int) -> int:
        skipped = 0
        while True:
            found = self._present.skip(rows - skipped) if self._present else 0
            self._gave = self._gave or found > 0
            skipped += found
            if skipped < rows:
                self._present = self.following(rows - skipped)
            if skipped == rows or self._present is None:
                return skipped


class DerivedStream(Stream):
    """The blocks of another pass, each replaced by one of as many rows.

    Args:
        inner: The other pass.
        derive: Makes a block of a block.
    """

    def __init__(self, inner: Stream, derive: Callable[[Block], Block]) -> None:
        self._inner = inner
        self._derive = derive

    def pull(self, rows: int) -> Block | None:
        block = self._inner.pull(rows)
        return None if block is None else self._derive(block)

    def skip(self, rows: int) -> int:
        return self._inner.skip(rows)


def look_up_each(part: np.ndarray, place: np.ndarray, lookup_of: Callable[[int], Lookup]) -> Block:
    """Return the elements that stand at `place` in several parts of a pass.

    Args:
        part: For each element, the number of its part.
        place: For each element, its position in that part.
        lookup_of: Returns how to look up in the part of a number.
    """
    numbers, places, order = by_part(part, place)
    blocks = [lookup_of(number)(each) for number, each in zip(numbers, places, strict=True)]
    return blocks[0] if len(blocks) == 1 else join(blocks).select(order)


def elements_of(stream: Stream) -> Iterator[Tree]:
    """Yield the elements of a pass."""
    # One at a time: a generator of the user may wait for the program to use what it yielded before.
    while (block := stream.pull(1)) is not None:
        yield block.elements()[0]


def pull_exactly(stream: Stream, rows: int) -> Block | None:
    """Return the next `rows` elements, fewer only at the end, or None when there are none."""
    first = stream.pull(rows)
    if first is None or len(first) == rows:
        return first
    blocks, have = [first], len(first)
    while have < rows and (block := stream.pull(rows - have)) is not None:
        blocks.append(block)
        have += len(block)
    return join(blocks)


class Node(ABC):
    """One step of a pipeline.

    Args:
        inputs: The steps that it reads from.
    """

    parallel_calls = 1
    """How many batches may be read at the same time, each in a thread of its own."""

    in_memory = True
    """Whether this step, apart from its inputs, calls no function of the user and reads no file."""

    reads_single_rows = False
    """Whether it reads the rows that a worker needs and no others, beside other reads."""

    repeats_itself = True
    """Whether the step, apart from its inputs, gives each pass the same elements in the same order."""

    row_function: object = None
    """The function of the user that makes each row; its `str` says its name. None for other steps."""

    def __init__(self, inputs: Sequence[Node] = ()) -> None:
        self.inputs = tuple(inputs)

    @abstractmethod
    def stream(self, key: Key) -> Stream:
        """Begin a pass."""

    def cardinality(self) -> int:
        """Number of elements, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`, by tf.data's rules."""
        return self.inputs[0].cardinality()

    def lookup(self, key: Key) -> Lookup | None:
        """Return how to reach the elements of a pass at any position, or None where only reading in order can tell.

        A step that has one knows its cardinality, and agrees with `stream`, position by position.
        """
        return None

    @cached_property
    def spec(self) -> Tree:
        """The tree of `TensorSpec` of an element."""
        return self._make_spec()

    def _make_spec(self) -> Tree:
        return self.inputs[0].spec

    def with_inputs(self, inputs: Sequence[Node]) -> Self:
        """Return the same step on other inputs."""
        other = copy.copy(self)
        other.inputs = tuple(inputs)
        return other


class Seeded(Node):
    """A step whose order is drawn.

    Args:
        inputs: The steps that it reads from.
        seed: Any integer; None draws one now from Python's `random`, which `keras.utils.set_random_seed` seeds.
    """

    repeats_itself = False

    def __init__(self, inputs: Sequence[Node], seed: int | None) -> None:
        super().__init__(inputs)
        self.is_drawn = seed is None
        self.seed = random.getrandbits(63) if seed is None else seed

    def with_seed(self, seed: int) -> Self:
        """Return the same step with another seed."""
        other = copy.copy(self)
        other.is_drawn, other.seed = False, seed
        return other

    def bits(self, key: Key) -> np.random.Philox:
        """Return the random bits of a pass."""
        # Raw bits, not numpy.random.Generator: NumPy keeps the bits of Philox and SeedSequence for ever, on every
        # platform, while Generator's methods may change with a release, and a resumed run may meet another release.
        return np.random.Philox(np.random.SeedSequence(self.seed & (2**64 - 1), spawn_key=key))


def settled(root: Node, seed: int) -> Node:
    """Return a pipeline that a function of the user made while reading, its undrawn seeds derived from `seed`.

    So all workers, which call the function each for itself, shuffle alike.
    """
    seeds = np.random.SeedSequence(seed & (2**64 - 1))

    def settle(step: Node) -> Node:
        if isinstance(step, Seeded) and step.is_drawn:
            return step.with_seed(int(seeds.spawn(1)[0].generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return step

    return rewrite(root, settle)


def drawn_apart(root: Node, stream: int) -> Node:
    """Return a pipeline whose undrawn seeds are other ones in each stream: workers that read it for themselves."""

    def redraw(step: Node) -> Node:
        if isinstance(step, Seeded) and step.is_drawn:
            bits = np.random.SeedSequence([step.seed, stream]).generate_state(1, np.uint64)[0]
            return step.with_seed(int(bits >> np.uint64(1)))
        return step

    return rewrite(root, redraw)


def walk(root: Node) -> Iterator[Node]:
    """Yield every step below and including `root` once, inputs first: the same order for equal pipelines."""
    seen: set[int] = set()
    waiting = [(root, False)]
    while waiting:
        node, is_next = waiting.pop()
        if is_next:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            waiting += [(node, True), *((child, False) for child in reversed(node.inputs))]


def rewrite(root: Node, replace: Callable[[Node], Node]) -> Node:
    """Return the pipeline with `replace` applied to every step, inputs first. A step used twice stays one step."""
    done: dict[int, Node] = {}
    for node in walk(root):
        done[id(node)] = replace(node.with_inputs([done[id(child)] for child in node.inputs]))
    return done[id(root)]
