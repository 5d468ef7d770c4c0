"""One pass over a dataset, with a state that can be stored: its elements; or, for training, the rows of this worker."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from stratagem.core.advancing import AdvancedByPython, becomes_constant
from stratagem.core.errors import InputError
from stratagem.data.blocks import Block, join
from stratagem.data.nodes import Node, Seeded, Stream, rewrite, walk
from stratagem.data.optional_element import OptionalElement
from stratagem.data.prefetch import Prefetcher
from stratagem.data.processes.readers import ReaderPool, ReaderProcess
from stratagem.data.structure import Tree, flatten, map_leaves, without_rows

RowsOf = Callable[[int], slice]
"""Maps the number of rows of a global batch to the contiguous part that this worker needs; it may be empty."""

State = dict[str, Any]
"""A position in the global dataset, as plain JSON: the same on every worker, whatever its rows."""


class Batch(NamedTuple):
    """This worker's part of one global batch.

    Args:
        rows: Number of rows of the global batch.
        data: Tree of arrays with only this worker's rows.
    """

    rows: int
    data: Tree


def whole(rows: int) -> slice:
    """The share of a worker that needs every row."""
    return slice(0, rows)


def random_seeds(node: Node) -> list[int]:
    """Return the seed of every step that draws, in an order that equal pipelines share."""
    return [step.seed for step in walk(node) if isinstance(step, Seeded)]


def with_random_seeds(node: Node, seeds: list[int]) -> Node:
    """Return the pipeline with these seeds in the steps that draw (see `random_seeds`)."""
    present = random_seeds(node)
    if len(seeds) != len(present):
        raise InputError(
            f"There are {len(seeds)} seeds for a dataset with {len(present)} shuffles.",
            "Build the same dataset on every worker. To resume, build the dataset that the state came from.",
        )
    if seeds == present:
        return node
    left = iter(seeds)
    return rewrite(node, lambda step: step.with_seed(next(left)) if isinstance(step, Seeded) else step)


Item = TypeVar("Item")


class DatasetIterator(AdvancedByPython, Generic[Item]):
    """Iterate over one pass of a dataset; made by `iter(dataset)`, `as_numpy_iterator` and `batches`.

    The elements and their order depend only on the dataset, its seeds and the iteration. `get_state` counts the
    delivered elements, not those that were read ahead. The state fits an iterator of any other kind or share over the
    same dataset, so a `stratagem.train.Checkpoint` can contain it. An exception while reading ends the iterator.

    Args:
        node: The last operation of the pipeline.
        read: Function of a stream and the number of its next element in the pass; it returns the items.
        iteration: Number of the pass.
        is_constant: Whether the iterator is made in a function that is being compiled, so that its elements are
            constants there.
    """

    def __init__(
        self,
        node: Node,
        read: Callable[[Stream, int], Iterator[Item]],
        iteration: int,
        *,
        is_constant: bool = False,
    ) -> None:
        self._node = node
        self._read = read
        self._iteration = iteration
        self._is_constant = is_constant
        self._consumed = 0
        self._items: Iterator[Item] | None = None
        self._closed = False

    def __iter__(self) -> DatasetIterator[Item]:
        return self

    def __next__(self) -> Item:
        if not self._is_constant:
            becomes_constant(False)
        if self._closed:
            raise StopIteration
        if self._items is None:
            stream = self._node.stream((self._iteration,))
            stream.skip(self._consumed)
            self._items = self._read(stream, self._consumed)
        item = next(self._items)
        self._consumed += 1
        return item

    def next(self) -> Item:
        """Return the next element, as `next(iterator)` does: `dataset.as_numpy_iterator().next()`."""
        return self.__next__()

    def get_next(self, name: str | None = None) -> Item:
        """Return the next element (`tf.data.Iterator.get_next`).

        Args:
            name: Accepted as in TensorFlow.

        Raises:
            OutOfRangeError: The data has ended. `next(iterator)` raises StopIteration instead, as in TensorFlow.
        """
        return self.get_next_as_optional().get_value()

    def get_next_as_optional(self) -> OptionalElement:
        """Return the next element, or an empty optional at the end."""
        return OptionalElement(*itertools.islice(self, 1), element_spec=self.element_spec)

    @property
    def element_spec(self) -> Tree:
        """The tree of `TensorSpec` of an element of the dataset."""
        return self._node.spec

    def get_state(self) -> State:
        """Return the position after the last delivered element, as plain JSON."""
        return {"iteration": self._iteration, "batches": self._consumed, "seeds": random_seeds(self._node)}

    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned, for this or any other share of the same dataset.

        Args:
            state: The result of `get_state`. Its seeds replace those of this iterator, not those of the dataset.

        Raises:
            InputError: The argument is not a state, or comes from a dataset with another number of shuffles.
        """
        try:
            iteration, consumed, seeds = int(state["iteration"]), int(state["batches"]), list(state["seeds"])
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"The state of a dataset is {state!r}.", "Give set_state what get_state returned."
            ) from None
        node = with_random_seeds(self._node, seeds)
        self._stop()
        self._node, self._iteration, self._consumed = node, iteration, consumed

    def close(self) -> None:
        """End the iterator and its reading ahead. A second call does nothing."""
        self._stop()
        self._closed = True

    def _stop(self) -> None:
        if isinstance(self._items, Prefetcher):
            self._items.close()
        self._items = None


def read_batches(
    stream: Stream,
    first: int,
    *,
    rows_of: RowsOf,
    prefetch: int,
    threads: int,
    processes: int,
    readers: ReaderPool | None,
    together: int,
) -> Iterator[Batch]:
    """Return the elements of a pass as global batches: what this worker needs of them.

    Args:
        stream: The elements.
        first: The number of the first of them in the pass.
        rows_of: Which rows of a batch this worker needs.
        prefetch: How many batches to hold ready; 0 reads each when it is asked for.
        threads: How many are read at the same time, in one thread each.
        processes: Reader processes that read them instead.
        readers: The processes, where they are to outlive the pass.
        together: How many are used at once, of arrays in memory: where `prefetch` is 0, so many are read at once, or
            more while they are small. 0 reads each when it is asked for.
    """
    plans = itertools.starmap(_Plan, enumerate(iter(functools.partial(stream.pull, 1), None), first))
    reading = _BatchReading(rows_of)
    if not prefetch:
        return reading.in_groups(stream, first, together) if together else map(reading, plans)
    if not processes:
        return Prefetcher(plans, prefetch, [reading] * threads)
    pool = readers or ReaderPool(processes)
    pool.begin_pass()
    reads = [functools.partial(reading, by=process) for process in pool.processes]
    return Prefetcher(plans, prefetch, reads, None if readers else pool.close)


_MOST_TOGETHER: Final = 32
"""Batches that are read at once, at most: one took 42 us to read, each of 32 16 to 21 (images of 28x28 numbers)."""

_BYTES_TOGETHER: Final = 4 << 20
"""Bytes that are read at once, at most, where a batch is not larger."""


def _group_of(batch: Batch) -> int:
    """Return how many batches of this size are read at once."""
    nbytes = sum(getattr(leaf, "nbytes", _BYTES_TOGETHER) for leaf in flatten(batch.data)[0])
    return min(_MOST_TOGETHER, _BYTES_TOGETHER // max(nbytes, 1))


class _Plan(NamedTuple):
    number: int
    element: Block


class _BatchReading:
    """Reads batches. Which one comes when plays no part, so that several threads may read at once."""

    def __init__(self, rows_of: RowsOf) -> None:
        self._rows_of = rows_of
        self._without: Tree | None = None

    def __call__(self, plan: _Plan, by: ReaderProcess | None = None) -> Batch:
        rows = by.inside(plan.element, plan.number) if by else plan.element.inside()
        count = len(rows)
        share = rows.select(self._rows_of(count))
        if len(share):
            data = by.gather(share, plan.number) if by else share.gather()
            self._without = without_rows(data) if self._without is None else self._without
            return Batch(count, data)
        if self._without is None:
            # Only rows can tell shapes and dtypes. A worker whose first share is empty reads one row for that.
            first = rows.select(slice(1))
            self._without = without_rows(by.gather(first, plan.number) if by else first.gather())
        return Batch(count, self._without)

    def in_groups(self, stream: Stream, number: int, count: int) -> Iterator[Batch]:
        """Yield the batches of a stream, those of a group as views of one gather where that can be.

        Args:
            stream: Of elements that are batches, which may be pulled before they are asked for.
            number: Of its next element in the pass.
            count: Batches of a group, at least.
        """
        size = count
        while (block := stream.pull(size)) is not None:
            plans = [_Plan(number + i, block.select(slice(i, i + 1))) for i in range(len(block))]
            batches = self._at_once(plans)
            yield from batches or map(self, plans)
            number += len(block)
            size = count if batches is None else max(count, _group_of(batches[0]))

    def _at_once(self, plans: Sequence[_Plan]) -> list[Batch] | None:
        """Read batches with one gather; None if each needs one of its own."""
        if not all(plan.element.in_batches for plan in plans):
            return None
        batches = [plan.element.inside() for plan in plans]
        shares = [rows.select(self._rows_of(len(rows))) for rows in batches]
        if not all(map(len, shares)) or len({share.family for share in shares}) > 1:
            return None
        data = join(shares).gather()
        ends = itertools.accumulate(map(len, shares))
        parts = [slice(end - len(share), end) for end, share in zip(ends, shares, strict=True)]
        return [
            Batch(len(rows), map_leaves(lambda leaf, part=part: leaf[part], data))
            for rows, part in zip(batches, parts, strict=True)
        ]
