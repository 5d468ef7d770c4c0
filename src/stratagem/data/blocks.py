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

from stratagem.core.errors import InputError
from stratagem.data.structure import (
    Tree,
    by_part,
    common_length,
    flatten,
    is_composite,
    joined,
    map_leaves,
    objects,
    stack,
    unstack,
)

Rows = slice | np.ndarray
"""Rows of a block: a slice, or a vector of positions."""


class Block(ABC):
    """Some elements of a dataset, in order, read on demand."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of elements."""

    @property
    def family(self) -> Hashable:
        """Equal for blocks that `merged` can join."""
        return type(self), id(self)

    @property
    def parts(self) -> Sequence[Block]:
        """The blocks whose rows are the rows of this one."""
        return ()

    def merged(self, others: Sequence[Any]) -> Block:
        """Return this block followed by `others`, blocks of the same family."""
        return JoinedBlock.of([self, *others])

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
        return all(part.rereadable for part in self.parts)

    @property
    def local(self) -> bool:
        """Whether this process is the one to read it: its rows are in memory here, or are to be kept here."""
        return all(part.local for part in self.parts)

    @property
    def in_batches(self) -> bool:
        """Whether `inside` reads nothing."""
        return False

    def portable(self) -> Block:
        """Return the block as it goes to another process to be read: with its rows, where this process holds them."""
        return self

    @property
    def constants(self) -> tuple[object, ...]:
        """Sources and functions that many blocks refer to. Each goes to another process once."""
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


class VectorBlock(Block):
    """Rows named by a vector.

    Args:
        origin: What the vector refers to; None where it has the rows themselves.
        vector: The positions of the rows, or the rows.
    """

    def __init__(self, origin: Any, vector: np.ndarray) -> None:
        self._origin = origin
        self._vector = vector

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Self:
        """Return the block of these rows."""
        return cls(None, objects(rows))

    def __len__(self) -> int:
        return len(self._vector)

    @property
    def family(self) -> Hashable:
        return type(self), id(self._origin)

    def merged(self, others: Sequence[Self]) -> Block:
        return type(self)(self._origin, np.concatenate([self._vector, *(other._vector for other in others)]))

    def select(self, rows: Rows) -> Block:
        return type(self)(self._origin, self._vector[rows])


class IndexBlock(VectorBlock):
    """Rows of a `Source`, named by position."""

    def elements(self) -> list[Tree]:
        return unstack(self._origin.take(self._vector))

    def gather(self) -> Tree:
        return joined(self._origin.take(self._vector))

    @property
    def local(self) -> bool:
        return self._origin.in_memory

    def portable(self) -> Block:
        return ColumnsBlock(self._origin.take(self._vector)) if self.local else self

    @property
    def constants(self) -> tuple[object, ...]:
        return (self._origin,)


class HeldBlock(VectorBlock):
    """Elements in memory, one object each, so that a row that is dropped frees its memory."""

    def elements(self) -> list[Tree]:
        return self._vector.tolist()

    @property
    def rereadable(self) -> bool:
        return False


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
        self._length = common_length(
            columns,
            "The elements of the dataset have no common batch dimension",
            "Write dataset.batch(GLOBAL_BATCH_SIZE) before the dataset goes to fit or to a strategy, "
            "and unbatch() only after batch().",
        )

    def __len__(self) -> int:
        return self._length

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


class DerivedBlock(Block):
    """Rows made of the rows of other blocks, one by one.

    Args:
        how: How a row is made; hashable.
        parts: Blocks of one length.
    """

    def __init__(self, how: Any, *parts: Block) -> None:
        self._how = how
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def parts(self) -> Sequence[Block]:
        return self._parts

    @property
    def family(self) -> Hashable:
        return type(self), self._how, tuple(part.family for part in self._parts)

    def merged(self, others: Sequence[Self]) -> Block:
        return type(self)(self._how, *map(join, zip(self._parts, *(other._parts for other in others), strict=True)))

    def select(self, rows: Rows) -> Block:
        return type(self)(self._how, *(part.select(rows) for part in self._parts))

    def portable(self) -> Block:
        return type(self)(self._how, *(part.portable() for part in self._parts))


class MapBlock(DerivedBlock):
    """Rows to which a function is applied when they are read."""

    def elements(self) -> list[Tree]:
        return [self._how(element) for element in self._parts[0].elements()]

    @property
    def rereadable(self) -> bool:
        return False

    @property
    def local(self) -> bool:
        return False

    @property
    def constants(self) -> tuple[object, ...]:
        return (self._how,)


class ZipBlock(DerivedBlock):
    """Rows side by side, nested as a tree of `optree` says."""

    def elements(self) -> list[Tree]:
        rows = zip(*(part.elements() for part in self._parts), strict=True)
        return [self._how.unflatten(row) for row in rows]

    def gather(self) -> Tree:
        return self._how.unflatten([part.gather() for part in self._parts])

    def inside(self) -> Block:
        inner = [part.inside() for part in self._parts]
        if len({len(block) for block in inner}) > 1:
            raise InputError(
                f"Dataset.zip met batches of {' and '.join(str(len(block)) for block in inner)} rows.",
                "Zip first and batch afterwards: Dataset.zip((a, b)).batch(GLOBAL_BATCH_SIZE).",
            )
        return ZipBlock(self._how, *inner)

    @property
    def in_batches(self) -> bool:
        return all(part.in_batches for part in self._parts)


class BatchBlock(VectorBlock):
    """Elements that are batches, each a block of rows."""

    @property
    def parts(self) -> Sequence[Block]:
        return self._vector.tolist()

    def elements(self) -> list[Tree]:
        return [batch.gather() for batch in self._vector]

    def inside(self) -> Block:
        return self._vector[0]

    def each(self, function: Callable[[Block], Block]) -> BatchBlock:
        """Return the batches with `function` applied to the rows of each."""
        return BatchBlock.of([function(batch) for batch in self._vector])

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
    def parts(self) -> Sequence[Block]:
        return self._parts

    def select(self, rows: Rows) -> Block:
        numbers, places, order = by_part(self._part[rows], self._place[rows])
        parts = [self._parts[number].select(each) for number, each in zip(numbers, places, strict=True)]
        if len(parts) == 1:
            return parts[0]
        counts = np.array([len(part) for part in parts], np.intp)
        part = np.repeat(np.arange(len(parts)), counts)[order]
        return JoinedBlock(parts, part, order - (np.cumsum(counts) - counts)[part])

    def elements(self) -> list[Tree]:
        read = [piece.elements() for piece in self._parts]
        return [read[k][row] for k, row in zip(self._part.tolist(), self._place.tolist(), strict=True)]

    def gather(self) -> Tree:
        starts = np.cumsum([0, *(len(piece) for piece in self._parts[:-1])])
        index = starts[self._part] + self._place
        columns = [piece.gather() for piece in self._parts]
        if any(map(is_composite, flatten(columns[0])[0])):
            return super().gather()
        try:
            return map_leaves(lambda *leaves: np.concatenate(leaves)[index], *columns)
        except ValueError:
            # The parts differ in structure or shape: `stack` says how.
            return super().gather()

    def portable(self) -> Block:
        return JoinedBlock([piece.portable() for piece in self._parts], self._part, self._place)


def _alone(block: Block) -> JoinedBlock:
    return JoinedBlock([block], np.zeros(len(block), np.intp), np.arange(len(block)))
