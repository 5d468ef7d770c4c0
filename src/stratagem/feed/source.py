"""The nouns on the way of a batch: a `Source` opens a `Reader`, which gives the rows of each step.

There are two ways to share rows. Either each step is one global batch, shared by all replicas (`read_together`). Or
each worker reads streams of its own for its own replicas, and the workers tell each other the row counts at each step
(`read_pieces`, `read_streams`). A `Feed` puts the rows on the devices (`feed.feed`).
"""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import jax

from stratagem.core.errors import InputError, PeerError
from stratagem.data.batches import Batch, State
from stratagem.data.nodes import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stratagem.data.structure import is_composite, joined_rows
from stratagem.feed.batch import Adapt, batch_spec_of, no_rows
from stratagem.feed.kinds.base import Passes
from stratagem.mesh.blocks import Unlike
from stratagem.mesh.mesh import Tree
from stratagem.mesh.split import Split, equal_shares
from stratagem.replica.context import StrategyLike

READ_AHEAD: Final = 2
"""Batches read in the background while a step runs: one in use, one ready."""

_ENDED: Final = -1
"""Stands for the row count of a replica whose stream has ended; 0 is an empty batch."""

_PAD: Final = (
    "One compiled step runs on all replicas, so their arrays may differ only in the number of rows.",
    "Pad the examples to one length before they are batched.",
)


class Rows(NamedTuple):
    """The rows of one step.

    Args:
        shares: Rows of each replica of all workers.
        local: Structure of arrays with the rows of this worker's replicas one after another.
    """

    shares: tuple[int, ...]
    local: Tree


class Reader:
    """One pass over a source: an iterator over the rows of each step. Steps without rows are passed over.

    Args:
        take: Returns the rows of the next step, None at the end.
        get_state: Returns the position after the last step, as plain JSON.
        close: Ends the pass, and the threads that read ahead for it.
    """

    def __init__(
        self, take: Callable[[], Rows | None], get_state: Callable[[], State], close: Callable[[], None]
    ) -> None:
        self._take, self.get_state, self.close = take, get_state, close

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Rows:
        while (rows := self._take()) is not None:
            if any(rows.shares):
                return rows
        raise StopIteration


class Source(Passes, ABC):
    """Batches, pass after pass, and where reading goes on.

    Attributes:
        reads_ahead: Whether it reads batches before they are asked for: what is read of a generator is lost to others.
    """

    reads_ahead: bool = False

    @property
    def element_spec(self) -> Tree:
        """Structure of `TensorSpec` of a global batch."""
        return batch_spec_of(self.first())

    @abstractmethod
    def first(self) -> Tree:
        """Return arrays like those of the first global batch, without using it up."""

    @abstractmethod
    def open(self, state: State | None = None) -> Reader:
        """Begin a pass. All workers begin together.

        Args:
            state: A position of an earlier reader to go on from; later passes follow that one.
        """

    @abstractmethod
    def position(self) -> State:
        """Return where the next pass begins, as plain JSON."""

    @abstractmethod
    def resume(self, state: State) -> None:
        """Let the next pass begin at a position, of a source or a reader, in this or an earlier run of the program."""

    def advice(self) -> str:
        """Return what to write so that reading is faster, in one clause."""
        return (
            "it makes its batches when they are asked for: a stratagem.data.Dataset reads ahead in several threads or "
            "processes, a keras.utils.PyDataset with workers=2 and use_multiprocessing=True"
        )

    @property
    def cardinality(self) -> int:
        """Number of batches, or the number that stands for none."""
        if self.num_batches is not None:
            return self.num_batches
        return UNKNOWN_CARDINALITY if self.may_end else INFINITE_CARDINALITY


class Batches(Iterator[Batch], Protocol):
    """One pass over batches, of which each has the rows that this worker needs."""

    def get_state(self) -> State: ...

    def close(self) -> None: ...


# Global batches, shared by all replicas -----------------------------------------------------------


def read_together(
    batches: Batches, strategy: StrategyLike, adapt: Adapt, *, asks: bool, compare: Callable[[], None] | None = None
) -> Reader:
    """Read global batches. The pass ends on all workers when the data of one ends.

    Args:
        batches: This worker's rows of each.
        strategy: Whose replicas share them.
        adapt: What is done to each.
        asks: Whether the workers ask each other before each batch if the data goes on, which costs about 1 ms.
        compare: Compares the first batch with those of the other workers, where each reads whole ones.
    """
    several, replicas = strategy.layout.size > 1, strategy.mesh.size
    to_compare = [compare] if several and compare is not None else []

    def take() -> Rows | None:
        batch = next(batches, None)
        if asks and several and _has_ended(strategy, 0 if batch is None else batch.rows):
            return None
        if batch is None:
            return None
        while to_compare:
            to_compare.pop()()
        return Rows(equal_shares(batch.rows, replicas), adapt(batch.data))

    return Reader(take, batches.get_state, batches.close)


def _has_ended(strategy: StrategyLike, rows: int) -> bool:
    """Whether the data of any worker has ended: the others would wait in a collective for ever."""
    told = strategy.from_all("rows of the next batch", rows)
    if 0 in told:
        if any(told):
            ended = ", ".join(f"worker {i}" for i, count in enumerate(told) if count == 0)
            warnings.warn(f"The data of {ended} ended first, so all workers end the pass here.", stacklevel=2)
        return True
    if len(set(told)) > 1:
        raise PeerError(
            f"The workers read batches of different sizes: {told} rows on workers 0 to {len(told) - 1}.",
            "Each worker takes its part of one global batch, so all must read the same batches.",
            "Give every worker the same dataset or generator, with the same seed.",
        )
    return False


# Streams of each worker's own ---------------------------------------------------------------------

Take = Callable[[], "tuple[Sequence[int], Tree]"]
"""Returns the rows of each local replica (or _ENDED), and these rows one after another, or None."""


def read_pieces(
    batches: Batches,
    strategy: StrategyLike,
    adapt: Adapt,
    empty: Tree,
    *,
    asks: bool,
    parts: int,
    state: State | None,
    first: int = 0,
) -> Reader:
    """Read a worker's stream, whose batches last for several steps: a piece at each, shared by the local replicas.

    The pieces of a batch have equally many rows. A last batch that is shorter than the first gives pieces as large as
    that one's, and fewer, as in TensorFlow: fewer steps, and none of them with a handful of rows.

    Pieces are counted whether they have rows or not, and behind the end of the stream too: the position is that of
    all workers, also of those whose streams are shorter.

    Args:
        batches: Whole batches of the stream.
        strategy: Whose replicas get the rows.
        adapt: What is done to each piece.
        empty: A batch without rows.
        asks: Whether the workers tell each other their row counts at each step, which costs about 1 ms. Without it
            all streams must be equally long and their batches of equal size.
        parts: Pieces of a batch.
        state: Where the batches stand, or None at their beginning.
        first: Rows of the stream's first batch, where that has been read already.
    """
    replicas = len(strategy.mesh.local_replicas)
    taken = 0 if state is None else int(state["batches"]) * parts + _checked_part(state, parts)
    current: Batch | None = None
    following: Batch | None = None
    pieces = Split.of([0] * parts)

    def advance() -> None:
        nonlocal first, current, following, pieces
        current, following = following or next(batches, None), None
        if current is not None:
            first = first or current.rows
            if current.rows < first:
                following = next(batches, None)
            pieces = split_of_pieces(current.rows, first if following is None else current.rows, parts)

    if taken % parts:
        advance()

    def take() -> tuple[Sequence[int], Tree]:
        nonlocal taken
        number = taken % parts
        taken += 1
        if number == 0:
            advance()
        if current is None:
            return [_ENDED] * replicas, None
        piece = slice(pieces.start(number), pieces.start(number + 1))
        shares = Split(pieces.shares[number], replicas).shares
        return shares, adapt(jax.tree.map(lambda leaf: leaf[piece], current.data, is_leaf=is_composite))

    def get_state() -> State:
        number, part = divmod(taken, parts)
        now = {**batches.get_state(), "batches": number}
        return {**now, "part": [part, parts]} if parts > 1 else now

    return Reader(_steps(take, strategy, empty, asks=asks), get_state, batches.close)


def split_of_pieces(rows: int, first: int, parts: int) -> Split:
    """Return the rows of each piece of a batch.

    Args:
        rows: Rows of the batch.
        first: Rows of the first batch of the stream, if this is the last; else its own rows.
        parts: Pieces.

    Example:
        >>> split_of_pieces(4, 4, parts=2).shares, split_of_pieces(2, 4, parts=2).shares
        ((2, 2), (2, 0))
    """
    ends = [min(rows, Split(max(rows, first), parts).start(piece)) for piece in range(parts + 1)]
    return Split.of([end - start for start, end in itertools.pairwise(ends)])


def read_streams(streams: Sequence[Batches], strategy: StrategyLike, adapt: Adapt, empty: Tree) -> Reader:
    """Give each local replica a batch of its own: of the worker's stream in turn, or of the replica's stream.

    Args:
        streams: One, or one for each local replica.
        strategy: Whose replicas get the rows.
        adapt: What is done to each batch.
        empty: A batch without rows.
    """
    replicas = len(strategy.mesh.local_replicas)

    def take() -> tuple[Sequence[int], Tree]:
        batches = [next(streams[replica % len(streams)], None) for replica in range(replicas)]
        present = [adapt(batch.data) for batch in batches if batch is not None]
        counts = [_ENDED if batch is None else batch.rows for batch in batches]
        return counts, _joined(present) if present else None

    def get_state() -> State:
        return {"streams": [stream.get_state() for stream in streams]}

    def close() -> None:
        for stream in streams:
            stream.close()

    return Reader(_steps(take, strategy, empty, asks=True), get_state, close)


def _steps(take: Take, strategy: StrategyLike, empty: Tree, *, asks: bool) -> Callable[[], Rows | None]:
    """Return a function that takes the rows of the next step.

    A replica whose stream has ended gets no rows. The pass ends when the last stream of all workers ends, as in
    TensorFlow.
    """
    asks = asks and strategy.worker_count > 1

    def take_step() -> Rows | None:
        nonlocal empty
        counts, local = take()
        if local is None:
            local = empty
        empty = no_rows(local)
        everyone = _told_by_all(strategy, counts, local) if asks else [*counts] * strategy.worker_count
        if max(everyone) == _ENDED:
            return None
        return Rows(tuple(max(count, 0) for count in everyone), local)

    return take_step


def _told_by_all(strategy: StrategyLike, counts: Sequence[int], local: Tree) -> list[int]:
    """Return the row counts of all workers, whose rows must be of one kind: else the step would never match."""
    shapes = [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in jax.tree.leaves(local)]
    told = strategy.from_all("rows of the next step", [list(counts), shapes])
    kinds = {worker: shapes for worker, (counts, shapes) in enumerate(told) if max(counts) > 0}
    if any(shapes != next(iter(kinds.values())) for shapes in kinds.values()):
        listed = "; ".join(f"worker {worker}: {', '.join(shapes)}" for worker, shapes in kinds.items())
        raise PeerError(f"The workers read rows of different shapes ({listed}).", *_PAD)
    return [count for counts, _ in told for count in counts]


def _joined(batches: Sequence[Tree]) -> Tree:
    if len(batches) == 1:
        return batches[0]
    return jax.tree.map(_joined_or_unlike, *batches, is_leaf=is_composite)


def _joined_or_unlike(*leaves: Any) -> Any:
    try:
        return joined_rows(*leaves)
    except ValueError as error:
        found = f"The batches of two replicas differ in more than their number of rows: {error}."
        return Unlike(leaves, InputError(found, *_PAD))


def _checked_part(state: State, parts: int) -> int:
    part, of = state.get("part", (0, 1))
    if of != parts and (part or state["batches"]):  # the beginning is the same for any number
        raise InputError(
            f"The state is from a run in which a batch lasts for {of} step(s); here it lasts for {parts}.",
            "Under AutoShardPolicy.OFF, HINT and FILE each worker reads a stream of its own.",
            "Resume on the same number of workers, or use AutoShardPolicy.DATA, whose state fits any number.",
        )
    return part
