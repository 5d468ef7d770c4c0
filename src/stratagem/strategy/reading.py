"""Which rows each replica gets at each step of a custom loop.

Two ways: the rows of one global batch, shared by all replicas; or, where each worker reads a stream of
its own, what this worker's streams give its replicas, the counts told to all workers at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import jax
import numpy as np

from stratagem.core.errors import InputError, PeerError, explain
from stratagem.core.types import ValueContext
from stratagem.data.batches import State
from stratagem.data.specs import TensorSpec
from stratagem.fit.sources import AgreedReader, Reader, Source
from stratagem.replica.blocks import per_replica, stacked
from stratagem.replica.context import StrategyLike
from stratagem.replica.mesh import Tree
from stratagem.replica.split import Split

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
    """One pass: an iterator over the rows of each step."""

    def __next__(self) -> StepRows: ...

    def get_state(self) -> State:
        """Return the position after the last step, as plain JSON."""
        ...

    def close(self) -> None:
        """End the pass."""
        ...


class GlobalSteps:
    """Each step is a global batch.

    Args:
        source: The batches.
        strategy: Whose replicas share them.
        read_ahead: Batches to read in the background.
        state: Where to begin, or None.
    """

    def __init__(self, source: Source, strategy: StrategyLike, read_ahead: int, state: State | None) -> None:
        self._reader = AgreedReader(source, strategy, read_ahead=read_ahead, state=state)
        self._replicas = strategy.mesh.size

    def __next__(self) -> StepRows:
        rows, local = next(self._reader)
        return StepRows(Split(rows, self._replicas).shares, local)

    def get_state(self) -> State:
        return self._reader.get_state()

    def close(self) -> None:
        self._reader.close()


Take = Callable[[], tuple[list[int], Tree]]
"""Takes the next batches of this worker: rows of each local replica (or _ENDED), and these rows, or None."""


class OwnSteps:
    """Each step takes from streams of the worker's own. A replica whose stream has ended gets no rows.

    The pass ends when the last stream of all workers ends, as in TensorFlow. Each step costs one exchange
    of row counts between the workers, about 1 ms.

    Args:
        readers: This worker's streams.
        take: Takes a step's batches from them.
        strategy: Whose replicas get them.
        element_spec: Structure of `TensorSpec` of a batch.
    """

    def __init__(self, readers: Sequence[Reader], take: Take, strategy: StrategyLike, element_spec: Tree) -> None:
        self._readers = readers
        self._take = take
        self._strategy = strategy
        self._empty = jax.tree.map(_no_rows, element_spec, is_leaf=lambda leaf: isinstance(leaf, TensorSpec))

    def __next__(self) -> StepRows:
        while True:
            counts, local = self._take()
            if local is None:
                local = self._empty
            self._empty = jax.tree.map(_no_rows, local)
            told = self._strategy.from_all("rows of the next step", [counts, _shapes(local)])
            everyone = [count for counts, _ in told for count in counts]
            if all(count == _ENDED for count in everyone):
                raise StopIteration
            _check_shapes(told)
            shares = tuple(max(count, 0) for count in everyone)
            if any(shares):
                return StepRows(shares, local)

    def get_state(self) -> State:
        return {"streams": [reader.get_state() for reader in self._readers]}

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


def batch_for_each(readers: Sequence[Reader], replicas: int) -> Take:
    """Give each local replica a batch of its own: of the worker's stream in turn, or of the replica's stream.

    Args:
        readers: One stream, or one for each local replica.
        replicas: How many local replicas.
    """

    def take() -> tuple[list[int], Tree]:
        batches = [next(readers[replica % len(readers)], None) for replica in range(replicas)]
        present = [batch.data for batch in batches if batch is not None]
        counts = [_ENDED if batch is None else batch.rows for batch in batches]
        return counts, _joined(present) if present else None

    return take


def batch_for_all(reader: Reader, workers: int, replicas: int) -> Take:
    """Share each batch among the local replicas.

    Args:
        reader: The worker's stream, whose row counts stand for all workers.
        workers: How many workers.
        replicas: How many local replicas.
    """

    def take() -> tuple[list[int], Tree]:
        batch = next(reader, None)
        if batch is None:
            return [_ENDED] * replicas, None
        return list(Split(batch.rows // workers, replicas).shares), batch.data

    return take


def _joined(batches: Sequence[Tree]) -> Tree:
    if len(batches) == 1:
        return batches[0]
    try:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)
    except ValueError as error:
        raise InputError(
            explain(
                f"The batches of two replicas differ in more than their number of rows: {error}.",
                "One compiled step runs on all replicas, so arrays have one shape but for the rows.",
                "Pad the examples to one length before they are batched.",
            )
        ) from None


def _no_rows(leaf: Any) -> np.ndarray:
    """Return an array like a batch, or as a spec says, with no rows; an unknown size counts as 1."""
    return np.empty((0, *(1 if size is None else size for size in (leaf.shape or ())[1:])), leaf.dtype)


def _shapes(local: Tree) -> list[str]:
    return [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in jax.tree.leaves(local)]


def _check_shapes(told: Sequence[Any]) -> None:
    """Check that the workers with rows have rows of one kind: else the step would never match."""
    kinds = {worker: shapes for worker, (counts, shapes) in enumerate(told) if max(counts) > 0}
    if any(shapes != next(iter(kinds.values())) for shapes in kinds.values()):
        listed = "; ".join(f"worker {worker}: {', '.join(shapes)}" for worker, shapes in kinds.items())
        raise PeerError(
            explain(
                f"The workers read rows of different shapes ({listed}).",
                "One compiled step runs on all replicas, so arrays have one shape but for the rows.",
                "Pad the examples to one length before they are batched.",
            )
        )


def values_from_function(strategy: StrategyLike, value_fn: Callable[[ValueContext], Tree]) -> Tree:
    """Make a per-replica value (`Strategy.experimental_distribute_values_from_function`)."""
    mesh = strategy.mesh
    made = [value_fn(ValueContext(replica, mesh.size)) for replica in mesh.local_replicas]
    structure = jax.tree.structure(made[0])
    if any(jax.tree.structure(value) != structure for value in made):
        raise InputError(
            explain(
                f"value_fn returned {' and '.join(str(jax.tree.structure(value)) for value in made)}.",
                "The replicas' values could not be put side by side.",
                "Return the same structure for every replica.",
            )
        )
    columns = zip(*(jax.tree.leaves(value) for value in made), strict=True)
    return structure.unflatten([_value(strategy, [np.asarray(leaf) for leaf in column]) for column in columns])


def _value(strategy: StrategyLike, leaves: Sequence[np.ndarray]) -> Any:
    """Return the per-replica value of one array for each local replica."""
    told = strategy.from_all("shapes of a value", [[f"{leaf.dtype}", list(leaf.shape)] for leaf in leaves])
    kinds = [kind for worker in told for kind in worker]
    scalar = all(shape == [] for _, shape in kinds)
    if not scalar and (any(shape == [] for _, shape in kinds) or len({(d, *s[1:]) for d, s in kinds}) > 1):
        listed = ", ".join(f"{dtype}{shape}" for dtype, shape in kinds)
        raise InputError(
            explain(
                f"value_fn returned arrays of {listed} for replicas 0 to {len(kinds) - 1}.",
                "One compiled step runs on all replicas, so their values have one shape but for the first dimension.",
                "Return arrays alike for every replica.",
            )
        )
    if strategy.mesh.size == 1:
        return per_replica(strategy.mesh, (), leaves[0])
    if scalar:
        return stacked(strategy.mesh, np.stack(leaves))
    return per_replica(strategy.mesh, [shape[0] for _, shape in kinds], np.concatenate(leaves))
