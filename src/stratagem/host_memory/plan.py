"""Plan of one exchange: where its arrays lie in the memory that the workers of a host share.

Each worker has a lane of the memory. An exchange that does not fit into it takes several rounds. Small arrays of one
kind lie side by side and are combined as one; a large one is combined directly into its result.

With several hosts an exchange has two phases. Between them, the values for other hosts are in one array for each kind,
its parcel. The parcel of sums holds this worker's share. Arrays that are scattered or gathered have a block for each
worker of all hosts. The parcel of scattered arrays holds the blocks of the workers in this worker's group (`Hosts`),
and holds the worker's own block when it comes back. The parcel of gathered arrays holds the worker's own block, and
comes back with the blocks of the group. In both, the arrays lie one after the other, with all arrays of a block
together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from stratagem.host_memory.hosts import Hosts

Operation = Literal["sum", "min", "max", "gather", "scatter"]
"""The way in which the workers' arrays combine; "gather" stacks them along a new first axis; "scatter" sums them, and
each worker gets its block of the sum, along the first axis: in the place of that block of the array, or, with several
hosts, alone."""

Phase = Literal["combine", "scatter", "collect"]
"""Work of the workers of a host: all combine all; each makes its parcels; all get the contents of all parcels."""

IN_BLOCKS: Final[tuple[Operation, ...]] = ("gather", "scatter")

_COPIED: Final[dict[Phase, Operation]] = {"scatter": "gather", "collect": "scatter"}
"""Arrays of two phases that in one of them only this worker has to do with: it copies its own block."""

LARGE: Final = 1 << 16
"""Bytes from which an array is combined on its own."""

ALIGNMENT: Final = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class PlanPart:
    """One array of an exchange.

    Args:
        operation: How it combines with those of the other workers.
        dtype: Its dtype.
        shape: Its shape, the same on every worker.
    """

    operation: Operation
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def kind(self) -> tuple[Operation, np.dtype]:
        """The kind of parcel that carries it between hosts. Gathered arrays are copied, whatever their dtype."""
        return self.operation, np.dtype(np.uint8) if self.operation == "gather" else self.dtype

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Piece:
    """Bytes of one array, and where they lie in a lane.

    Args:
        index: Index of the array in the exchange.
        start: First byte in the array.
        nbytes: Number of bytes.
        place: First byte in the lane.
    """

    index: int
    start: int
    nbytes: int
    place: int


class Stretch(NamedTuple):
    """Bytes of a block that lie in a piece.

    Args:
        number: Number of the block in its group.
        start: First byte in the block.
        begin: First byte in the piece.
        nbytes: Number of bytes.
    """

    number: int
    start: int
    begin: int
    nbytes: int


@dataclass
class Run:
    """Pieces that lie side by side and are combined at once.

    Args:
        operation: How they combine.
        dtype: Their dtype.
        whole: Whether it is one piece of a large array, and not many small arrays.
        pieces: The pieces, in order.

    Attributes:
        share: Bytes of a worker's share.
        lies: First byte of this share in the parcel of its kind.
    """

    operation: Operation
    dtype: np.dtype
    whole: bool
    pieces: list[Piece] = field(default_factory=list)
    share: int = 0
    lies: int = 0

    @property
    def place(self) -> int:
        """First byte in the lane."""
        return self.pieces[0].place

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    def share_of(self, sharer: int) -> tuple[int, int]:
        """Return where the share of a worker begins, and its bytes: 0 bytes for a worker without a share."""
        begin = min(sharer * self.share, self.nbytes)
        return begin, min(self.share, self.nbytes - begin)


class Plan:
    """The rounds of one exchange.

    Args:
        name: The exchange and its program; the same on every worker.
        parts: The arrays; some are scattered or gathered in two phases only if hosts are even.
        capacity: Bytes of a lane.
        hosts: All workers by host.
        phase: What the workers do.

    Attributes:
        groups: The blocks that each worker of a host carries to other hosts, or from them.
        rounds: The runs of each round; at least one round if something new begins, so that the workers meet.
        parcels: Bytes of a worker's parcel for each kind of arrays; of a block of it if it holds blocks.
        text: The exchange in words, for error messages.
        signature: A number, 0 to 2**63 - 1, that identifies this exchange; the same in every process.
    """

    def __init__(
        self, name: str, parts: Sequence[PlanPart], capacity: int, hosts: Hosts, phase: Phase = "combine"
    ) -> None:
        self.name = name
        self.parts = tuple(parts)
        self.phase: Phase = phase
        self.hosts = hosts
        self.groups = hosts.groups
        self.parcels = {part.kind: 0 for part in parts if part.nbytes}
        self.text = f"{name}: {', '.join(map(str, parts))}"
        digest = hashlib.blake2b(f"{phase} {self.text}".encode(), digest_size=8).digest()
        self.signature = int.from_bytes(digest, "little") >> 1
        self._blocks = [part.nbytes // (hosts.size if part.operation == "scatter" else 1) for part in parts]
        self._places = [self._packed(index) for index in range(len(parts))]
        self.rounds: list[list[Run]] = [[]]
        end = 0
        for run in self._runs(capacity):
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            if begin + run.nbytes > capacity:
                self.rounds.append([])
                begin = 0
            end = begin + run.nbytes
            run.pieces[:] = [Piece(p.index, p.start, p.nbytes, begin + p.place) for p in run.pieces]
            self.rounds[-1].append(run)
            if run.operation not in IN_BLOCKS:
                self._share(run, hosts.sharers)
        if phase == "collect" and not end:
            self.rounds = []

    def kind(self, operation: Operation, dtype: np.dtype) -> int:
        """Return the number of a kind of arrays, which is that of its parcel."""
        return list(self.parcels).index((operation, dtype))

    def in_parcel(self, index: int, number: int = 0) -> tuple[int, int]:
        """Return where a block of an array lies: in which parcel, and its first byte there.

        Args:
            index: Index of the array.
            number: Number of the block in a group, if the parcel holds blocks.
        """
        key = self.parts[index].kind
        return self.kind(*key), number * self.parcels[key] + self._places[index]

    def block(self, index: int) -> int:
        """Return the bytes of a block of an array that is scattered or gathered."""
        return self._blocks[index]

    def copied(self) -> list[int]:
        """Return the arrays that this worker copies to a parcel, or from one, without the others."""
        return [i for i, part in enumerate(self.parts) if part.nbytes and part.operation == _COPIED.get(self.phase)]

    def stretches(self, piece: Piece, worker: int) -> Iterator[Stretch]:
        """Yield the parts of a worker's blocks that lie in a piece: its part of a sum, or its values for all."""
        size, scattered = self.block(piece.index), self.parts[piece.index].operation == "scatter"
        for number, block in enumerate(self.groups[worker]):
            first = (block if scattered else number) * size - piece.start
            begin, end = max(first, 0), min(first + size, piece.nbytes)
            if begin < end:
                yield Stretch(number, begin - first, begin, end - begin)

    def _packed(self, index: int) -> int:
        """Give an array that is scattered or gathered its place in a block of the parcel, and return it."""
        part = self.parts[index]
        if part.operation not in IN_BLOCKS or not part.nbytes:
            return 0
        self.parcels[part.kind] += self.block(index)
        return self.parcels[part.kind] - self.block(index)

    def _share(self, run: Run, sharers: int) -> None:
        key = (run.operation, run.dtype)
        run.share = -(-run.nbytes // (sharers * ALIGNMENT)) * ALIGNMENT
        run.lies = self.parcels[key]
        self.parcels[key] += run.share

    def _runs(self, capacity: int) -> Iterator[Run]:
        """Yield the runs, each as if it began at the beginning of the lane."""
        small: dict[tuple[Operation, np.dtype], Run] = {}
        most = capacity // ALIGNMENT * ALIGNMENT
        for index, part in enumerate(self.parts):
            nbytes = part.nbytes * (self.hosts.number if part.operation == "gather" else 1)
            if part.operation == _COPIED.get(self.phase) or not nbytes:
                continue
            if nbytes >= LARGE or part.operation == "scatter":
                for start in range(0, nbytes, most):
                    piece = Piece(index, start, min(most, nbytes - start), 0)
                    yield Run(part.operation, part.dtype, True, [piece])
                continue
            key = (part.operation, part.dtype)
            run = small.setdefault(key, Run(*key, False))
            if run.pieces and run.nbytes + nbytes > min(LARGE, most):
                yield run
                run = small[key] = Run(*key, False)
            run.pieces.append(Piece(index, 0, nbytes, run.nbytes))
        yield from small.values()
