"""Plan of one exchange: where its arrays lie in the memory that the workers of a host have in common.

Each worker has a lane of the memory. An exchange that does not fit into it takes several rounds. Small arrays of one
kind lie side by side and are combined as one; a large one is combined straight into its result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

Operation = Literal["sum", "min", "max", "gather"]
"""The way in which the workers' arrays combine; "gather" stacks them along a new first axis."""

Phase = Literal["combine", "scatter", "collect"]
"""Work of the workers of a host: all combine all; each combines its share; all get the shares of all."""

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

    def __str__(self) -> str:
        return f"{self.operation} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Piece:
    """Bytes of one array, and where they lie in a lane.

    Args:
        index: Which array of the exchange.
        start: First byte in the array.
        nbytes: How many.
        place: First byte in the lane.
    """

    index: int
    start: int
    nbytes: int
    place: int


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
        kind: Which of the plan's kinds it is of; only what is shared has one.
        lies: First byte of its share among the shares of that kind.
    """

    operation: Operation
    dtype: np.dtype
    whole: bool
    pieces: list[Piece] = field(default_factory=list)
    share: int = 0
    kind: int = 0
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
        """Return where the share of a worker begins, and its bytes: none of those that carry none."""
        begin = min(sharer * self.share, self.nbytes)
        return begin, min(self.share, self.nbytes - begin)


class Plan:
    """The rounds of one exchange.

    Args:
        name: Which exchange of which program; the same on every worker.
        parts: The arrays; to be shared they are not gathered.
        capacity: Bytes of a lane.
        sharers: How many workers of the host share the work on large arrays.
        phase: What the workers do.

    Attributes:
        rounds: The runs of each round; at least one round, so that the workers meet.
        shares: Of each kind of arrays that are combined, bytes of all shares of one worker.
        text: The exchange in words, for error messages.
        signature: A number, 0 to 2**63 - 1, that tells this exchange from others; in every process the same.
    """

    def __init__(
        self, name: str, parts: Sequence[PlanPart], capacity: int, sharers: int, phase: Phase = "combine"
    ) -> None:
        self.parts = tuple(parts)
        self.phase: Phase = phase
        self.shares: dict[tuple[Operation, np.dtype], int] = {}
        self.text = f"{name}: {', '.join(map(str, parts))}"
        digest = hashlib.blake2b(f"{phase} {self.text}".encode(), digest_size=8).digest()
        self.signature = int.from_bytes(digest, "little") >> 1
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
            self._share(run, sharers)

    def _share(self, run: Run, sharers: int) -> None:
        key = (run.operation, run.dtype)
        run.share = -(-run.nbytes // (sharers * ALIGNMENT)) * ALIGNMENT
        run.lies = self.shares.setdefault(key, 0)
        run.kind = list(self.shares).index(key)
        self.shares[key] += run.share

    def _runs(self, capacity: int) -> Iterator[Run]:
        """Yield the runs, each as if it began at the beginning of the lane."""
        small: dict[tuple[Operation, np.dtype], Run] = {}
        most = capacity // ALIGNMENT * ALIGNMENT
        for index, part in enumerate(self.parts):
            if part.nbytes >= LARGE:
                for start in range(0, part.nbytes, most):
                    piece = Piece(index, start, min(most, part.nbytes - start), 0)
                    yield Run(part.operation, part.dtype, True, [piece])
            elif part.nbytes:
                key = (part.operation, part.dtype)
                run = small.setdefault(key, Run(*key, False))
                if run.pieces and run.nbytes + part.nbytes > min(LARGE, most):
                    yield run
                    run = small[key] = Run(*key, False)
                run.pieces.append(Piece(index, 0, part.nbytes, run.nbytes))
        yield from small.values()
