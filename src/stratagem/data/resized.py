"""Batches of other sizes, from some batch of a pass on: those of a run whose workers keep their numbers of rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from stratagem.data.blocks import Block
from stratagem.data.cache import Cache
from stratagem.data.dataset import Dataset
from stratagem.data.nodes import UNKNOWN_CARDINALITY, Key, Node, Stream
from stratagem.data.ragged_batch import RaggedBatched
from stratagem.data.sequence import Every, Repeat, Take
from stratagem.data.shuffle import Shuffle
from stratagem.data.specs import TensorSpec
from stratagem.data.stateful import Counted, IgnoreErrors, TakeWhile
from stratagem.data.structure import Tree, map_leaves
from stratagem.data.transforms import Batched, BatchStream, Filter, Map, Padded, UnbatchStream
from stratagem.data.windows import Rebatched

Sizes = tuple[tuple[int, int], ...]
"""Rows of the batches of a pass: (the number of a batch, the rows from there on), in order. Batches before the first of
these are as the program makes them."""

_OF_ONE_BATCH: Final = (Map, Padded, RaggedBatched)
"""Steps that make one batch of each batch."""

_OF_BATCHES: Final = (*_OF_ONE_BATCH, Filter, Take, Every, Repeat, Cache, Shuffle, Counted, IgnoreErrors, TakeWhile)
"""Steps whose elements are batches of the step before them."""


def rows_of_batches(dataset: Dataset) -> int | None:
    """Return the number of rows in a full batch of a dataset; None where no step says it.

    Args:
        dataset: The dataset.

    Example:
        >>> rows_of_batches(Dataset.range(9).batch(4).repeat(2)), rows_of_batches(Dataset.range(9).batch(4).unbatch())
        (4, None)
    """
    batching = _batching(dataset._node, _OF_BATCHES)
    return None if batching is None else batching.size


def _batching(node: Node, passed: tuple[type[Node], ...]) -> Batched | Rebatched | None:
    """Return the step that makes the batches; None where another step than those of `passed` follows it."""
    while isinstance(node, passed):
        node = node.inputs[0]
    return node if isinstance(node, Batched | Rebatched) else None


def continued(sizes: Sizes, batches: int, rows: int, given: int) -> Sizes:
    """Return the sizes of a pass whose batches have another number of rows from some batch on.

    Args:
        sizes: The sizes of the pass so far.
        batches: How many batches were read.
        rows: Rows of each further batch.
        given: Rows of a batch as the program makes it.

    Example:
        >>> continued(continued((), 7, 20, given=30), 12, 30, given=30)
        ((7, 20), (12, 30))
    """
    kept = tuple((first, size) for first, size in sizes if first < batches)
    present = kept[-1][1] if kept else given
    return kept if rows == present else (*kept, (batches, rows))


def with_batch_sizes(dataset: Dataset, sizes: Sizes) -> Dataset:
    """Return a dataset with the same rows in the same order, in batches of other sizes.

    The last batch may have fewer rows. Functions that `map` calls for each batch get the batches of the new sizes.

    Args:
        dataset: A dataset of batches.
        sizes: The sizes of its batches.

    Example:
        >>> [len(batch) for batch in with_batch_sizes(Dataset.range(20).batch(6), ((2, 3),))]
        [6, 6, 3, 3, 2]
    """
    return Dataset(_resized(dataset._node, sizes), dataset.options()) if sizes else dataset


def _resized(node: Node, sizes: Sizes) -> Node:
    # As near to `batch` as can be: what follows may call a function for each batch, or fill up its rows.
    if isinstance(node, _OF_ONE_BATCH) and _batching(node, _OF_ONE_BATCH) is not None:
        return node.with_inputs([_resized(node.inputs[0], sizes)])
    return Resized(node, sizes)


class Resized(Node):
    """Batches of other sizes, with the same rows in the same order.

    Args:
        batches: The batches as they are.
        sizes: The sizes of a pass; not empty.
    """

    def __init__(self, batches: Node, sizes: Sizes) -> None:
        super().__init__([batches])
        self._sizes = sizes

    def stream(self, key: Key) -> Stream:
        return _ResizedStream(self.inputs[0].stream(key), self._sizes)

    def cardinality(self) -> int:
        batches = self.inputs[0]
        count, first = batches.cardinality(), self._sizes[0][0]
        if count < 0 or count <= first:
            return count
        if not isinstance(batches, Batched):
            return UNKNOWN_CARDINALITY
        rows = batches.inputs[0].cardinality()
        left = (count * batches.size if batches.drop_remainder else rows) - first * batches.size
        for (begin, size), (end, _) in itertools.pairwise(self._sizes):
            if left <= (end - begin) * size:
                return begin + -(-left // size)
            left -= (end - begin) * size
        begin, size = self._sizes[-1]
        return begin + -(-left // size)

    def _make_spec(self) -> Tree:
        return map_leaves(_of_any_rows, self.inputs[0].spec)


def _of_any_rows(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=None if spec.shape is None else (None, *spec.shape[1:]))


class _ResizedStream(Stream):
    """A pass: batches as they are, then their rows in batches of other sizes.

    Args:
        batches: The pass over the batches as they are.
        sizes: The sizes of the pass.
    """

    def __init__(self, batches: Stream, sizes: Sizes) -> None:
        self._batches, self._rows = batches, UnbatchStream(batches)
        self._sizes = sizes
        self._number = 0

    def _present(self) -> tuple[Stream, int | None]:
        """Return where the next batch comes from, and before which batch that changes."""
        number = self._number
        size = next((size for first, size in reversed(self._sizes) if first <= number), None)
        end = next((first for first, _ in self._sizes if first > number), None)
        return self._batches if size is None else BatchStream(self._rows, size, False), end

    def pull(self, rows: int) -> Block | None:
        stream, end = self._present()
        block = stream.pull(rows if end is None else min(rows, end - self._number))
        self._number += 0 if block is None else len(block)
        return block

    def skip(self, rows: int) -> int:
        skipped = 0
        while skipped < rows:
            stream, end = self._present()
            wanted = rows - skipped if end is None else min(rows - skipped, end - self._number)
            found = stream.skip(wanted)
            skipped += found
            self._number += found
            if found < wanted:
                break
        return skipped
