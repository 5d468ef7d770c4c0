"""World of a mesh whose workers may change while it trains (`stratagem.elastic`).

Each worker runs its steps between `may_begin` and `completed` of its membership. Where a worker is gone, the exchange of
the step that is in flight is cut; nothing of that step has been written, as its program gives no buffer away. The others
meet in the next world, and a new worker takes the state from one of them, through the memory of the host. Weights,
programs and batches of those who stay are what they were.

A worker that comes into a world which has trained before *catches up*: it runs the program up to the step in which the
others wait, and meets nobody on its way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import FileIO
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

import jax
import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.cluster.ending import leave
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core.errors import PeerError, UnsupportedError
from stratagem.core.log import announce, logger
from stratagem.elastic.client import PATIENCE_SECONDS, Membership
from stratagem.elastic.events import End, Form, Go, Order, Stop
from stratagem.elastic.world import World, WorldChangedError
from stratagem.elastic.world_store import WorldClient
from stratagem.host_memory.memory import HostMemory, needed_bytes
from stratagem.host_memory.plan import Plan, PlanPart
from stratagem.transport.memory import make_file, open_file

Result = TypeVar("Result")

NEWS_SECONDS: Final = 15.0
"""How long a failed step waits to hear that its world has ended."""


class Given(NamedTuple):
    """State of a worker after a step, as another one takes it.

    Args:
        said: What is no array, as JSON.
        arrays: The arrays.
    """

    said: Any
    arrays: list[np.ndarray]


class StateOfStep(Protocol[Result]):
    """The state that a step begins with, and what the step before returned."""

    def give(self) -> Given:
        """Return the state, for a worker that does not hold it."""
        ...

    def take(self, given: Given) -> Result:
        """Take the state of another worker, which has completed this step; return what its step returned."""
        ...


class ChangingWorld:
    """This worker's place in a world, and the way into the next.

    Args:
        membership: The connection to the coordinator.
        timeout_seconds: How long a meeting of the workers waits.

    Attributes:
        peers: The workers of the world. The object stays when they change.
        memory: What they have in common; it stays too.
        is_catching_up: Whether this worker has joined others that trained before, and does not hold their state.
    """

    def __init__(self, membership: Membership, timeout_seconds: float) -> None:
        self._membership = membership
        self.is_catching_up = False
        self._has_begun = False
        self._caught_up_to: int | None = None
        self._world = world = self._first_world()
        self._size = len(world.members)
        self.peers = Peers(self._client(world), _peers_of(world), self._rank_in(world), timeout_seconds)
        file, spins = self._made_together()
        self.memory = HostMemory(file, self.peers.own_index, self._names(), spins=spins)
        self._enter()

    # Steps -------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], Result], state: StateOfStep[Result]) -> Result:
        """Run a step; when the world changes, run it again in the next one.

        Args:
            step: The step. What it computes is there when it returns, and an exception leaves the state as it was.
            state: What the step begins with.

        Returns:
            What the step returned: here, or, if others had completed it, there.
        """
        if self.is_catching_up:
            self._arrive()
        while True:
            if self._membership.may_begin():
                try:
                    result = step()
                except Exception as error:
                    if not self.memory.is_cut:
                        raise
                    logger.debug("A step was cut: %s", error)
                else:
                    self._membership.completed()
                    return result
            taken = self._follow_orders(state)
            if taken is not None:
                return taken

    def catch_up(self) -> Given:
        """Return the state of the others, who wait for this worker. It begins with the step after it.

        The state is complete on this worker; it goes on alone until its first step.
        """
        while True:
            try:
                given = self._exchanged_state(None)
                assert given is not None, "who catches up holds no state"
                return given
            except (WorldChangedError, PeerError) as error:
                self._wait_for_next_world(error)

    def from_rank(self, rank: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays of one worker on all. All call it at the same point.

        Args:
            rank: Which worker.
            arrays: Arrays of the same shapes and dtypes on all workers.
        """
        if self.is_catching_up:
            return list(arrays)
        return self._sent(f"values of rank {rank}", rank, arrays)

    # Orders ------------------------------------------------------------------------------------------

    def obey(self, order: Order) -> None:
        """Cut what is in flight, where an order says so. Called in the thread that listens."""
        if isinstance(order, End) or (isinstance(order, Stop) and order.cut):
            self.memory.cut(self._world.number if isinstance(order, End) else order.world, order.reason)

    def _first_world(self) -> World:
        while True:
            order = self._membership.next_order()  # a spare waits as long as the run lasts
            if isinstance(order, Form):
                return order.world
            if isinstance(order, End):
                self._end(order)

    def _follow_orders(self, state: StateOfStep[Result]) -> Result | None:
        """Follow the coordinator until steps may begin; return what a step returned that others had completed."""
        taken: Result | None = None
        while True:
            order = self._next_order()
            if isinstance(order, Stop):
                self._membership.stopped()
            elif isinstance(order, Go):
                return taken
            elif isinstance(order, Form):
                try:
                    self._move(order.world)
                    given = self._exchanged_state(state)
                    taken = taken if given is None else state.take(given)
                    self._membership.formed(order.world.number)
                except (WorldChangedError, PeerError) as error:
                    if not (isinstance(error, WorldChangedError) or self.memory.is_cut):
                        raise
                    logger.debug("World %d was not formed: %s", order.world.number, error)

    def _next_order(self) -> Order:
        order = self._membership.next_order(PATIENCE_SECONDS)
        if isinstance(order, End):
            self._end(order)
        return order

    def _wait_for_next_world(self, error: PeerError) -> None:
        if not (isinstance(error, WorldChangedError) or self.memory.is_cut):
            raise error
        while not isinstance(order := self._next_order(), Form):
            pass
        try:
            self._move(order.world)
        except (WorldChangedError, PeerError) as following:
            self._wait_for_next_world(following)

    def _arrive(self) -> None:
        """Come to the first step: the others have waited for it."""
        while True:
            try:
                self._membership.formed(self._world.number)
            except WorldChangedError as error:
                self._wait_for_next_world(error)
                self._exchanged_state(None)  # it is the same: the others have completed no step meanwhile
                continue
            order = self._next_order()
            while not isinstance(order, Go | Form):
                order = self._next_order()
            if isinstance(order, Go):
                break
            self._move(order.world)
            self._exchanged_state(None)
        self._has_begun = True
        self.is_catching_up = self.peers.is_alone = False

    def _end(self, order: End) -> NoReturn:
        announce(f"This worker ends: {order.reason}.")
        leave(order.code)
        raise SystemExit(order.code)

    # Worlds ------------------------------------------------------------------------------------------

    def _client(self, world: World) -> WorldClient:
        return WorldClient(self._membership, world.number, jax.errors.JaxRuntimeError)

    def _rank_in(self, world: World) -> int:
        return world.rank_of(self._membership.number)

    def _names(self) -> list[str]:
        return [str(peer) for peer in self.peers.peers]

    def _move(self, world: World) -> None:
        """Take this worker's place in a world; all its members do."""
        if len(world.members) != self._size:
            raise UnsupportedError(
                f"World {world.number} has {len(world.members)} workers, the one before had {self._size}.",
                "Programs and batches are made for that number.",
                "Start the run with --elastic N:N, and with spares.",
            )
        self._world = world
        self.peers.move(self._client(world), _peers_of(world), self._rank_in(world))
        file, _ = self._made_together()
        self.memory.move(world.number, file, self.peers.own_index, self._names())
        self._enter()

    def _enter(self) -> None:
        """Begin together, where all are new; else find out whether this worker has to catch up with others."""
        if not any(self.peers.from_all("has begun", self._has_begun)):
            self._membership.formed(self._world.number)
            while not isinstance(order := self._next_order(), Go):
                if isinstance(order, Form):
                    self._move(order.world)
                    return
            self._has_begun = True
        elif not self._has_begun:
            self.is_catching_up = self.peers.is_alone = True

    @property
    def _holds_state(self) -> bool:
        gate = self._membership.gate
        return self._world.step == (gate.completed if self._has_begun else self._caught_up_to)

    def _made_together(self) -> tuple[FileIO, bool]:
        """Return new memory that the workers have in common, and whether each has a core. All call it."""
        size = needed_bytes(len(self.peers.peers))
        made = make_file(size) if self.peers.own_index == 0 else None
        name, path = self.peers.from_all("memory", [made.name, made.path] if made else ["", ""])[0]
        file = made.file if made else open_file(name, path, size)
        found = self.peers.from_all("has memory", [file is not None, *sorted(os.sched_getaffinity(0))])
        if not all(has for has, *_ in found) or file is None:
            raise UnsupportedError(
                "The workers have no memory in common.",
                "Elastic workers exchange through the memory of their host.",
                "Run them on one host, as one user, on Linux.",
            )
        return file, len({core for _, *cores in found for core in cores}) >= len(found)

    def _exchanged_state(self, state: StateOfStep[Any] | None) -> Given | None:
        """Let those who do not hold the state take it from the donor; return it where this worker did.

        All call it, at the step from which the world begins.
        """
        self.peers.is_alone = False
        try:
            needed = not all(self.peers.from_all("holds the state", self._holds_state))
            if not needed:
                return None
            donor, is_donor = self._world.donor, self._world.donor == self.peers.own_index
            given = state.give() if is_donor and state is not None else Given(None, [])
            kinds = [[array.dtype.name, list(array.shape)] for array in given.arrays]
            said, kinds = self.peers.from_all("state", [given.said, kinds] if is_donor else None)[donor]
            own = given.arrays if is_donor else [np.zeros(shape, _dtype(name)) for name, shape in kinds]
            arrays = self._sent(f"state of world {self._world.number}", donor, own)
            if self._holds_state:
                return None
            self._caught_up_to = self._world.step
            return Given(said, arrays)
        finally:
            self.peers.is_alone = self.is_catching_up

    def _sent(self, name: str, rank: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send arrays to all: those of the others are zeros, so a sum of bytes is what was sent."""
        is_source = rank == self.peers.own_index
        held = [np.array(array, order="C") if is_source else np.zeros(array.shape, array.dtype) for array in arrays]
        flat = [array.reshape(-1).view(np.uint8) for array in held if array.size]
        parts = [PlanPart("sum", np.dtype(np.uint8), each.shape) for each in flat]
        if parts:
            plan = Plan(name, parts, self.memory.capacity, self.memory.hosts)
            self.memory.add(plan)
            places = [each.ctypes.data for each in flat]
            self.memory.run(plan.signature, places, places)
        return held


def _dtype(name: str) -> np.dtype:
    return jax.numpy.dtype(name)


def _peers_of(world: World) -> list[Peer]:
    return [Peer(Task("worker", rank), each.host, each.pid) for rank, each in enumerate(world.members)]
