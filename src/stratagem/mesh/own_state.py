"""State of this worker where workers may change: how far it is, and the exchange with those that hold another.

Whoever is a step behind, or new, takes the state of a donor, through the memory of hosts. What is divided among the
workers, no donor has: all give their shards of it, and the copies that they keep (`mesh.kept_shards`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.common_memory import send
from stratagem.mesh.given import Given, Piece, StateOfStep
from stratagem.mesh.kept_shards import KeptShards, Kind, Shard, lost_shards, wholes
from stratagem.mesh.worker_counts import Layout

_NO_STATE: Final = -1


class OwnState:
    """State of this worker, and the exchange by which workers take it from each other.

    Args:
        keeps_copies: Whether each worker keeps copies of another one's shards.

    Attributes:
        steps: How many steps are done.
        num_evaluated: How many evaluations have come to their end.
        has_new: Whether a worker without a state was among those who exchanged last.
        shards: What it keeps of values in shards.
        axis_among: Returns the axis along which an array of a shape is divided among so many workers, if it is.
    """

    def __init__(self, keeps_copies: bool) -> None:
        self.steps = _NO_STATE
        self.num_evaluated = 0
        self.has_new = False
        self.shards = KeptShards(keeps_copies)
        self.axis_among: Callable[[Sequence[int], int], int | None] = lambda shape, size: None
        self._pieces: dict[int, Any] = {}
        """Parts of values in shards that this worker keeps in the present world, by place in a step."""
        self._taken: Given | None = None
        """State of another worker that this one has taken, and gives on until it has done a step of its own."""

    @property
    def has_begun(self) -> bool:
        """Whether there is a state."""
        return self.steps != _NO_STATE

    @property
    def place(self) -> list[int]:
        """The numbers of steps and evaluations that are done."""
        return [self.steps, self.num_evaluated]

    def hand_round(
        self, memory: HostMemory, world: int, layout: Layout, shards: Sequence[Shard], *, has_stepped: bool
    ) -> None:
        """Let workers keep copies of shards behind a step, or before the first one of a world. All workers call it.

        Args:
            memory: Through which they exchange.
            world: The number of the world.
            layout: The workers.
            shards: What this worker has of values in shards.
            has_stepped: Whether a step has been run that is not completed before this.

        Raises:
            PeerError: A worker is gone. The step does not count here; it may on others.
        """
        if not shards:
            self.shards.forget()
        elif has_stepped or not self.shards.is_of(world):
            self.shards.hand_round(memory, self.steps + has_stepped, world, layout, shards)

    def completed(self) -> None:
        """Note that a step is done."""
        self.steps += 1
        self._taken, self._pieces = None, {}

    def returned(self) -> None:
        """Note that the step that was taken of another worker is behind this one."""
        self._taken = None

    def exchange(
        self, peers: Peers, memory: HostMemory, world: int, layout: Layout, state: StateOfStep[Any] | None
    ) -> Given | None:
        """Let those who do not hold the newest state take it; return it where this worker did. All workers call it.

        Args:
            peers: The workers.
            memory: Through which they exchange.
            world: The number of the world.
            layout: All workers of it, and which of them this one is.
            state: What this worker is to begin a step with; None if it is new.

        Raises:
            PeerError: A worker is gone, or the shards of one are.
        """
        # Not what the coordinator takes each to hold: a worker may have taken the state of one that died then.
        counts = peers.from_all("steps", self.place)
        steps = [each for each, _ in counts]
        most = max(steps)
        self.has_new = min(steps) == _NO_STATE
        found = self.shards.find(peers, most)
        if found is None and state is not None and state.shards():
            raise lost_shards()
        kept = wholes(memory, found) if found is not None else ()
        self._pieces = {kind.place: self._piece(kind, whole, layout) for kind, whole in kept}
        if min(steps) == most:
            return None
        donor = steps.index(most)
        assert donor != peers.own_index or state is not None, "the donor is at a step"
        own = self.given_by(state) if donor == peers.own_index and state is not None else None
        given = _handed_on(peers, memory, f"state of world {world}", donor, own, self._pieces)
        if self.steps == most:
            return None
        self.steps, self.num_evaluated = counts[donor]
        self._taken = given.with_pieces(self._pieces)
        return self._taken

    def given_by(self, state: StateOfStep[Any]) -> Given:
        """Return the state that this worker holds: where it was a step behind, its own place in `fit` still is.

        Args:
            state: What it is to begin a step with.
        """
        return (self._taken or state.give()).with_pieces(self._pieces)

    def _piece(self, kind: Kind, whole: np.ndarray, layout: Layout) -> Any:
        """Return what this worker keeps of a value in shards in a world."""
        axis = self.axis_among(kind.shape, layout.size)
        if axis is None:
            return whole
        block = kind._replace(axis=axis).block(layout.rank, layout.size)
        return Piece(kind.shape, axis, block, np.ascontiguousarray(whole[block]))


def _handed_on(
    peers: Peers, memory: HostMemory, name: str, donor: int, given: Given | None, elsewhere: Iterable[int]
) -> Given:
    """Return the state that one worker gives, on all, without the arrays that come otherwise."""
    left_out = set(elsewhere)
    sent = [] if given is None else [each for place, each in enumerate(given.arrays) if place not in left_out]
    kinds = [[array.dtype.name, list(array.shape)] for array in sent]
    said, kinds = peers.from_all("state", [None if given is None else given.said, kinds])[donor]
    own = sent or [np.zeros(shape, jax.numpy.dtype(name)) for name, shape in kinds]
    arrays: list[Any] = send(peers, memory, name, donor, own)
    for place in sorted(left_out):
        arrays.insert(place, None)
    return Given(said, arrays)
