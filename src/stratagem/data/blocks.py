"""Rows that are known but not read yet.

A pipeline passes *blocks* along: each stands for some elements of the dataset, in order, and reads them only when
asked. Shuffling, batching and sharing rows among workers are arithmetic on blocks; a row that this worker does not
need is never read, and never handed to a function of the user.

Blocks of one *family* differ only in which rows they name, so that joining them is cheap; `join` does that, and
falls back to `JoinedBlock` for rows of different origin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self

import numpy as np
import optree

from stratagem.core.errors import InputError
from stratagem.data.structure import Tree, component_names, flatten, joined, map_leaves, objects, stack, unstack

Rows = slice | np.ndarray
"""Which rows of a block: a slice, or a vector of positions."""


class Block(ABC):
    """Some elements of a dataset, in order, read on demand."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of elements."""

    @property
    @abstractmethod
    def family(self) -> Hashable:
        """Equal for blocks that `merged` can join."""

    @abstractmethod
    def merged(self, others: Sequence[Any]) -> Block:
        """Return this block followed by `others`, blocks of the same family."""

    @abstractmethod
    def select(self, rows: Rows) -> Block:
        """Return the block of these rows, in this order. Reads nothing."""

    @abstractmethod
    def elements(self) -> list[Tree]:
        """Read the elements, one tree of arrays each."""

    def gather(self) -> Tree:
        """Read the elements (at least one), joined along a new leading axis."""
        return stack(self.elements())

    def inside(self) -> Block:
        """Return the rows of the only element, which is a batch."""
        return ColumnsBlock(self.elements()[0])

    @property
    def rereadable(self) -> bool:
        """Whether reading again costs no more than a copy, and gives arrays that nobody else has."""
        return True

    @property
    def local(self) -> bool:
        """Whether this process is the one to read it: its rows are in memory here, or are to be kept here."""
        return False

    @property
    def in_batches(self) -> bool:
        """Whether `inside` reads nothing."""
        return False

    def portable(self) -> Block:
        """Return the block as it goes to another process to be read: with its rows, where this process holds them."""
        return self

    @property
    def constants(self) -> tuple[object, ...]:
        """What many blocks refer to, so that it goes to another process once: sources and functions."""
        return ()


def join(blocks: Sequence[Block]) -> Block:
    """Return `blocks` (at least one) one after another, as one block."""
    if len(blocks) == 1:
        return blocks[0]
    family = blocks[0].family
    if all(block.family == family for block in blocks[1:]):
        return blocks[0].merged(blocks[1:])
    return JoinedBlock.of(blocks)


class Source(Protocol):
    """Elements that can be read in any order: arrays, ranges, record files.

    Several threads may call `take` at once. A source that is not plain data itself, such as open files, pickles as
    what it takes to open them again.
    """

    in_memory: bool
    """Whether `take` is no more than a copy. If not, the source can be pickled, and its pickle is small."""

    def __len__(self) -> int:
        """Number of elements."""
        ...

    def take(self, index: np.ndarray) -> Tree:
        """Return the elements at these positions, as columns that the caller owns.

        A component that differs in shape from element to element is a vector of arrays, of dtype `object`.
        """
        ...

    @property
    def spec(self) -> Tree:
        """The tree of `TensorSpec` of an element."""
        ...


class IndexBlock(Block):
    """Rows of a source, named by position."""

    def __init__(self, source: Source, index: np.ndarray) -> None:
        self._source = source
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    @property
    def family(self) -> Hashable:
        return IndexBlock, id(self._source)

    def merged(self, others: Sequence[Self]) -> Block:
        return IndexBlock(self._source, np.concatenate([self._index, *(other._index for other in others)]))

    def select(self, rows: Rows) -> Block:
        return IndexBlock(self._source, self._index[rows])

    def elements(self) -> list[Tree]:
        return unstack(self._source.take(self._index))

    def gather(self) -> Tree:
        return joined(self._source.take(self._index))

    @property
    def local(self) -> bool:
        return self._source.in_memory

    def portable(self) -> Block:
        return ColumnsBlock(self._source.take(self._index)) if self.local else self

    @property
    def constants(self) -> tuple[object, ...]:
        return (self._source,)


class HeldBlock(Block):
    """Elements in memory, one object each, so that a row that is dropped frees its memory."""

    def __init__(self, held: np.ndarray) -> None:
        self._held = held

    @classmethod
    def of(cls, elements: Sequence[Tree]) -> HeldBlock:
        """Return the block of these elements."""
        return cls(objects(elements))

    def __len__(self) -> int:
        return len(self._held)

    @property
    def family(self) -> Hashable:
        return HeldBlock

    def merged(self, others: Sequence[Self]) -> Block:
        return HeldBlock(np.concatenate([self._held, *(other._held for other in others)]))

    def select(self, rows: Rows) -> Block:
        return HeldBlock(self._held[rows])

    def elements(self) -> list[Tree]:
        return self._held.tolist()

    @property
    def rereadable(self) -> bool:
        return False

    @property
    def local(self) -> bool:
        return True


def hold(block: Block) -> Block:
    """Return a block that can be read again without calling a function of the user again."""
    return block if block.rereadable or isinstance(block, HeldBlock) else HeldBlock.of(block.elements())


class ColumnsBlock(Block):
    """The rows of one batch in memory.

    Args:
        columns: A tree of arrays with a common leading axis.

    Raises:
        InputError: The arrays have no common leading axis.
    """

    def __init__(self, columns: Tree) -> None:
        self._columns = columns
        self._length = _common_length(columns)

    def __len__(self) -> int:
        return self._length

    @property
    def family(self) -> Hashable:
        return ColumnsBlock, id(self)

    def merged(self, others: Sequence[Self]) -> Block:
        return JoinedBlock.of([self, *others])

    def select(self, rows: Rows) -> Block:
        return ColumnsBlock(map_leaves(lambda array: array[rows], self._columns))

    def elements(self) -> list[Tree]:
        return unstack(self._columns)

    def gather(self) -> Tree:
        return self._columns

    @property
    def rereadable(self) -> bool:
        # Its rows are views: one row kept in a shuffle buffer would keep the whole batch. Better held one by one.
        return False

    @property
    def local(self) -> bool:
        return True


def _common_length(columns: Tree) -> int:
    leaves, _ = flatten(columns)
    shapes = [np.shape(leaf) for leaf in leaves]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) == 1 and None not in lengths:
        return shapes[0][0]
    found = ", ".join(f"{name} {shape}" for name, shape in zip(component_names(columns), shapes, strict=True))
    raise InputError(
        f"The elements of the dataset have no common batch dimension; their shapes are: {found or 'none'}.",
        "Write dataset.batch(GLOBAL_BATCH_SIZE) before the dataset goes to fit or to a strategy, "
        "and unbatch() only after batch().",
    )


class MapBlock(Block):
    """Rows to which a function is applied when they are read."""

    def __init__(self, function: Callable[[Tree], Tree], inner: Block) -> None:
        self._function = function
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def family(self) -> Hashable:
        return MapBlock, self._function, self._inner.family

    def merged(self, others: Sequence[Self]) -> Block:
        return MapBlock(self._function, join([self._inner, *(other._inner for other in others)]))

    def select(self, rows: Rows) -> Block:
        return MapBlock(self._function, self._inner.select(rows))

    def elements(self) -> list[Tree]:
        return [self._function(element) for element in self._inner.elements()]

    @property
    def rereadable(self) -> bool:
        return False

    def portable(self) -> Block:
        return MapBlock(self._function, self._inner.portable())

    @property
    def constants(self) -> tuple[object, ...]:
        return (self._function,)


class ZipBlock(Block):
    """Rows side by side.

    Args:
        structure: How the components nest in an element.
        inner: One block per component, all equally long.
    """

    def __init__(self, structure: optree.PyTreeSpec, inner: Sequence[Block]) -> None:
        self._structure = structure
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner[0])

    @property
    def family(self) -> Hashable:
        return ZipBlock, self._structure, tuple(block.family for block in self._inner)

    def merged(self, others: Sequence[Self]) -> Block:
        columns = zip(self._inner, *(other._inner for other in others), strict=True)
        return ZipBlock(self._structure, [join(column) for column in columns])

    def select(self, rows: Rows) -> Block:
        return ZipBlock(self._structure, [block.select(rows) for block in self._inner])

    def elements(self) -> list[Tree]:
        rows = zip(*(block.elements() for block in self._inner), strict=True)
        return [self._structure.unflatten(row) for row in rows]

    def gather(self) -> Tree:
        return self._structure.unflatten([block.gather() for block in self._inner])

    def inside(self) -> Block:
        inner = [block.inside() for block in self._inner]
        if len({len(block) for block in inner}) > 1:
            raise InputError(
                f"Dataset.zip met batches of {' and '.join(str(len(block)) for block in inner)} rows.",
                "Zip first and batch afterwards: Dataset.zip((a, b)).batch(GLOBAL_BATCH_SIZE).",
            )
        return ZipBlock(self._structure, inner)

    @property
    def rereadable(self) -> bool:
        return all(block.rereadable for block in self._inner)

    @property
    def local(self) -> bool:
        return all(block.local for block in self._inner)

    @property
    def in_batches(self) -> bool:
        return all(block.in_batches for block in self._inner)

    def portable(self) -> Block:
        return ZipBlock(self._structure, [block.portable() for block in self._inner])


class BatchBlock(Block):
    """Elements that are batches, each a block of rows."""

    def __init__(self, batches: np.ndarray) -> None:
        self._batches = batches

    @classmethod
    def of(cls, batches: Sequence[Block]) -> BatchBlock:
        """Return the block whose elements are these batches."""
        return cls(objects(batches))

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def family(self) -> Hashable:
        return BatchBlock

    def merged(self, others: Sequence[Self]) -> Block:
        return BatchBlock(np.concatenate([self._batches, *(other._batches for other in others)]))

    def select(self, rows: Rows) -> Block:
        return BatchBlock(self._batches[rows])

    def elements(self) -> list[Tree]:
        return [batch.gather() for batch in self._batches]

    def inside(self) -> Block:
        return self._batches[0]

    def each(self, function: Callable[[Block], Block]) -> BatchBlock:
        """Return the batches with `function` applied to the rows of each."""
        return BatchBlock.of([function(batch) for batch in self._batches])

    @property
    def rereadable(self) -> bool:
        return all(batch.rereadable for batch in self._batches)

    @property
    def local(self) -> bool:
        return all(batch.local for batch in self._batches)

    @property
    def in_batches(self) -> bool:
        return True

    def portable(self) -> Block:
        return self.each(lambda batch: batch.portable())


class JoinedBlock(Block):
    """Rows of blocks of different families.

    Args:
        parts: One block per family.
        part: For each row, which part it comes from.
        place: For each row, its position in that part. Every row of every part is named once.
    """

    def __init__(self, parts: Sequence[Block], part: np.ndarray, place: np.ndarray) -> None:
        self._parts = parts
        self._part = part
        self._place = place

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> JoinedBlock:
        """Return `blocks` one after another; those of one family are merged."""
        number_of: dict[Hashable, int] = {}
        members: list[list[Block]] = []
        lengths: list[int] = []
        part, place = [], []
        for block in blocks:
            joined = block if isinstance(block, JoinedBlock) else _alone(block)
            number = np.empty(len(joined._parts), np.intp)
            offset = np.empty(len(joined._parts), np.intp)
            for k, piece in enumerate(joined._parts):
                family = number_of.setdefault(piece.family, len(members))
                if family == len(members):
                    members.append([])
                    lengths.append(0)
                number[k], offset[k] = family, lengths[family]
                members[family].append(piece)
                lengths[family] += len(piece)
            part.append(number[joined._part])
            place.append(joined._place + offset[joined._part])
        return cls([join(pieces) for pieces in members], np.concatenate(part), np.concatenate(place))

    def __len__(self) -> int:
        return len(self._part)

    @property
    def family(self) -> Hashable:
        return JoinedBlock, id(self)

    def merged(self, others: Sequence[Self]) -> Block:
        return JoinedBlock.of([self, *others])

    def select(self, rows: Rows) -> Block:
        part, place = self._part[rows], self._place[rows]
        # One sort, not a search for each part: the pool of a shuffle may come from a thousand files.
        by_part = np.argsort(part, kind="stable")
        present, counts = np.unique(part[by_part], return_counts=True)
        starts = np.cumsum(counts) - counts
        parts = [
            self._parts[k].select(place[by_part[start : start + count]])
            for k, start, count in zip(present.tolist(), starts.tolist(), counts.tolist(), strict=True)
        ]
        number, renumbered = np.empty_like(part), np.empty_like(place)
        number[by_part] = np.repeat(np.arange(len(parts)), counts)
        renumbered[by_part] = np.arange(len(part)) - np.repeat(starts, counts)
        if len(parts) == 1:
            return parts[0]
        return JoinedBlock(parts, number, renumbered)

    def elements(self) -> list[Tree]:
        read = [piece.elements() for piece in self._parts]
        return [read[k][row] for k, row in zip(self._part.tolist(), self._place.tolist(), strict=True)]

    def gather(self) -> Tree:
        starts = np.cumsum([0, *(len(piece) for piece in self._parts[:-1])])
        index = starts[self._part] + self._place
        columns = [piece.gather() for piece in self._parts]
        try:
            return map_leaves(lambda *leaves: np.concatenate(leaves)[index], *columns)
        except ValueError:
            # The parts differ in structure or shape: `stack` says how.
            return super().gather()

    @property
    def rereadable(self) -> bool:
        return all(piece.rereadable for piece in self._parts)

    @property
    def local(self) -> bool:
        return all(piece.local for piece in self._parts)

    def portable(self) -> Block:
        return JoinedBlock([piece.portable() for piece in self._parts], self._part, self._place)


def _alone(block: Block) -> JoinedBlock:
    return JoinedBlock([block], np.zeros(len(block), np.intp), np.arange(len(block)))
