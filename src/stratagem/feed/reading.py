"""Which rows each replica gets at each step.

Two ways: the rows of one global batch, shared by all replicas; or, where each worker reads a stream of
its own, what this worker's stream gives its replicas, the counts told to all workers at each step.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import jax
import numpy as np

from stratagem.core.errors import InputError, PeerError
from stratagem.data.batches import State
from stratagem.data.specs import TensorSpec
from stratagem.feed.sources import READ_AHEAD, LocalRows, Reader, Source
from stratagem.mesh.mesh import Tree
from stratagem.mesh.split import Split
from stratagem.replica.context import StrategyLike

_ENDED: Final = -1
"""Stands for the row count of a replica whose stream has ended; 0 is an empty batch."""


class StepRows(NamedTuple):
    """The rows of one step.

    Args:
        shares: Rows of each replica of all workers.
        local: Structure of arrays with the rows of this worker's replicas one after another.
    """

    shares: tuple[int, ...]
    local: Tree


class Steps(Protocol):
    """One pass: an iterator over the rows of each step, all of which have rows."""

    def __iter__(self) -> Iterator[StepRows]: ...

    def __next__(self) -> StepRows: ...

    def get_state(self) -> State:
        """Return the position after the last step, as plain JSON."""
        ...

    def close(self) -> None:
        """End the pass."""
        ...


def begin(source: Source, strategy: StrategyLike, *, read_ahead: int = READ_AHEAD, state: State | None = None) -> Steps:
    """Begin a pass over a source. All workers begin together.

    Args:
        source: The batches.
        strategy: Whose replicas get them.
        read_ahead: Batches to read in the background.
        state: Where to begin, or None.
    """
    reader = source.open(read_ahead=read_ahead, state=state)
    if not source.own:
        return GlobalSteps(reader, strategy, asks=source.may_end)
    pieces = OnePieceForAll(reader, len(strategy.mesh.local_replicas))
    return OwnSteps(pieces, strategy, no_rows(source.first()), asks=source.may_end)


class GlobalSteps:
    """Each step is a global batch. The pass ends on all workers when the data of one ends.

    Where each worker reads whole batches, they compare the first one: see `feed.same_batches`.

    Args:
        reader: The batches.
        strategy: Whose replicas share them.
        asks: Whether the workers ask each other before each batch if the data goes on, which costs about 1 ms.
    """

    def __init__(self, reader: Reader, strategy: StrategyLike, *, asks: bool) -> None:
        self._reader = reader
        self._strategy = strategy
        self._asks = asks and strategy.worker_count > 1
        self._compares = strategy.worker_count > 1

    def __iter__(self) -> GlobalSteps:
        return self

    def __next__(self) -> StepRows:
        while True:
            batch = next(self._reader, None)
            if self._asks:
                self._ask(batch)
            if batch is None:
                raise StopIteration
            if self._compares:
                self._reader.check_alike(self._strategy)
                self._compares = False
            if batch.rows:
                return StepRows(Split(batch.rows, self._strategy.mesh.size).shares, batch.data)

    def get_state(self) -> State:
        return self._reader.get_state()

    def close(self) -> None:
        self._reader.close()

    def _ask(self, batch: LocalRows | None) -> None:
        """End on all workers when the data of one ends: the others would wait in a collective for ever."""
        rows = self._strategy.from_all("rows of the next batch", 0 if batch is None else batch.rows)
        if 0 in rows:
            if set(rows) != {0}:
                ended = ", ".join(f"worker {i}" for i, count in enumerate(rows) if count == 0)
                warnings.warn(f"The data of {ended} ended first; all workers end here.", stacklevel=2)
            raise StopIteration
        if len(set(rows)) > 1:
            raise PeerError(
                f"The workers read batches of different sizes: {rows} rows on workers 0 to {len(rows) - 1}.",
                "Each worker takes its part of one global batch, so all must read the same batches.",
                "Give every worker the same dataset or generator, with the same seed.",
            )


class OwnRows(Protocol):
    """What a worker's own streams give its replicas, step by step."""

    def take(self) -> tuple[list[int], Tree]:
        """Return the rows of each local replica (or _ENDED), and these rows one after another, or None."""
        ...

    def get_state(self) -> State:
        """Return the position after the last step, as plain JSON."""
        ...

    def close(self) -> None:
        """End the streams."""
        ...


class OwnSteps:
    """Each step takes from streams of the worker's own. A replica whose stream has ended gets no rows.

    The pass ends when the last stream of all workers ends, as in TensorFlow.

    Args:
        own: This worker's streams.
        strategy: Whose replicas get the rows.
        empty: A batch without rows.
        asks: Whether the workers tell each other their row counts at each step, which costs about 1 ms. Without it
            all streams must be equally long and their batches of equal size.
    """

    def __init__(self, own: OwnRows, strategy: StrategyLike, empty: Tree, *, asks: bool) -> None:
        self._own = own
        self._strategy = strategy
        self._empty = empty
        self._asks = asks and strategy.worker_count > 1

    def __iter__(self) -> OwnSteps:
        return self

    def __next__(self) -> StepRows:
        while True:
            counts, local = self._own.take()
            if local is None:
                local = self._empty
            self._empty = no_rows(local)
            everyone = self._all_counts(counts, local)
            if all(count == _ENDED for count in everyone):
                raise StopIteration
            shares = tuple(max(count, 0) for count in everyone)
            if any(shares):
                return StepRows(shares, local)

    def _all_counts(self, counts: list[int], local: Tree) -> list[int]:
        if not self._asks:
            return counts * self._strategy.worker_count
        told = self._strategy.from_all("rows of the next step", [counts, _shapes(local)])
        _check_shapes(told)
        return [count for counts, _ in told for count in counts]

    def get_state(self) -> State:
        return self._own.get_state()

    def close(self) -> None:
        self._own.close()


class OneBatchForEach:
    """Gives each local replica a batch of its own: of the worker's stream in turn, or of the replica's stream.

    Args:
        readers: One stream, or one for each local replica.
        replicas: How many local replicas.
    """

    def __init__(self, readers: Sequence[Reader], replicas: int) -> None:
        self._readers = readers
        self._replicas = replicas

    def take(self) -> tuple[list[int], Tree]:
        batches = [next(self._readers[replica % len(self._readers)], None) for replica in range(self._replicas)]
        present = [batch.data for batch in batches if batch is not None]
        counts = [_ENDED if batch is None else batch.rows for batch in batches]
        return counts, _joined(present) if present else None

    def get_state(self) -> State:
        return {"streams": [reader.get_state() for reader in self._readers]}

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


class OnePieceForAll:
    """Shares each piece of the worker's stream among the local replicas.

    Args:
        reader: The worker's stream.
        replicas: How many local replicas.
    """

    def __init__(self, reader: Reader, replicas: int) -> None:
        self._reader = reader
        self._replicas = replicas

    def take(self) -> tuple[list[int], Tree]:
        piece = next(self._reader, None)
        if piece is None:
            return [_ENDED] * self._replicas, None
        return list(Split(piece.rows, self._replicas).shares), piece.data

    def get_state(self) -> State:
        return self._reader.get_state()

    def close(self) -> None:
        self._reader.close()


def _joined(batches: Sequence[Tree]) -> Tree:
    if len(batches) == 1:
        return batches[0]
    try:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    except ValueError as error:
        raise InputError(
            f"The batches of two replicas differ in more than their number of rows: {error}.",
            "One compiled step runs on all replicas, so arrays have one shape but for the rows.",
            "Pad the examples to one length before they are batched.",
        ) from None


def no_rows(batch: Tree) -> Tree:
    """Return arrays like those of a batch with no rows.

    Args:
        batch: Structure of arrays, or of `TensorSpec`; an unknown size counts as 1.
    """

    def without(leaf: Any) -> np.ndarray:
        return np.empty((0, *(1 if size is None else size for size in (leaf.shape or ())[1:])), leaf.dtype)

    return jax.tree.map(without, batch, is_leaf=lambda leaf: isinstance(leaf, TensorSpec))


def _shapes(local: Tree) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in jax.tree.leaves(local)]


def _check_shapes(told: Sequence[Any]) -> None:
    """Check that the workers with rows have rows of one kind: else the step would never match."""
    kinds = {worker: shapes for worker, (counts, shapes) in enumerate(told) if max(counts) > 0}
    if any(shapes != next(iter(kinds.values())) for shapes in kinds.values()):
        listed = "; ".join(f"worker {worker}: {', '.join(shapes)}" for worker, shapes in kinds.items())
        raise PeerError(
            f"The workers read rows of different shapes ({listed}).",
            "One compiled step runs on all replicas, so arrays have one shape but for the rows.",
            "Pad the examples to one length before they are batched.",
        )
