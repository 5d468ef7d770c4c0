"""World of a mesh whose workers may change while it trains (`stratagem.elastic`).

Each worker runs its steps between `may_begin` and `completed` of its membership. Where a worker is gone, the exchange
of the step that is in flight is cut; nothing of that step has been written, as its program gives no buffer away. The
others meet in the next world, and a new worker takes the state from one of them, through the memory of the host.
Weights, programs and batches of those who stay are what they were.

A process that comes when others train already *prepares*: it runs the program up to training, and waits there until it
is taken in. A worker that comes into a world which has trained before *catches up*: it runs the program up to the step
in which the others wait, and meets nobody on its way. Where the world has another number of workers than before, or
this worker another rank, its programs do not fit: `ResizedError` unwinds its `fit`, which begins again where it was and
catches up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import jax
import numpy as np

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError
from stratagem.core.log import logger
from stratagem.elastic.client import PATIENCE_SECONDS, Membership
from stratagem.elastic.events import End, Form, Go, Order, Stop
from stratagem.elastic.world import World, WorldChangedError
from stratagem.elastic.world_store import WorldClient
from stratagem.host_memory.memory import HANG_SECONDS
from stratagem.mesh.common_memory import meet_in_memory, memory_of_one, send
from stratagem.mesh.given import Given, Loop, ResizedError, StateOfStep, another_step
from stratagem.mesh.kept_shards import Shard
from stratagem.mesh.linking import Reach
from stratagem.mesh.orders import Orders
from stratagem.mesh.own_state import OwnState
from stratagem.mesh.worker_counts import Layout, bind_in, peers_of

Result = TypeVar("Result")


class ChangingWorld:
    """This worker's place in a world, and the way into the next.

    Args:
        membership: The connection to the coordinator.
        timeout_seconds: How long a meeting of the workers waits.
        reach: How workers of other hosts reach this one.
        keeps_rows_of_workers: Whether each worker keeps its rows of a batch when their number changes, so that a batch
            has more or fewer.
        keeps_copies: Whether each worker keeps copies of another one's shards.
        cores: Those of the host, which its workers divide; none where the system does.

    Attributes:
        membership: The connection to the coordinator.
        peers: The workers of the world. The object stays when they change.
        memory: What they have in common; it stays too.
        is_catching_up: Whether this worker is on its way to the step in which the others wait, and meets nobody.
        is_preparing: Whether it is on its way to training, and not taken in yet.
        made_for: What the programs of a `fit` of this worker are made for; None where they fit no world any more.
        followed: The layout that the mesh of this worker has taken.
        loop: The loop that runs, if it is one of the program's own that workers may leave and join.
        own_state: How far this worker is, and what it holds.
    """

    def __init__(
        self,
        membership: Membership,
        timeout_seconds: float,
        reach: Reach,
        *,
        keeps_rows_of_workers: bool = False,
        keeps_copies: bool = True,
        cores: Sequence[int] = (),
    ) -> None:
        self._reach, self._cores = reach, cores
        self.keeps_rows_of_workers = keeps_rows_of_workers and membership.bounds.may_change
        self.membership = membership
        self._thread = threading.get_ident()
        self.is_catching_up = False
        self._taking_place = threading.RLock()
        self._is_due: Literal["state", "formed"] | None = None
        """What is left to be done in this world before steps begin: to hand on the state, and to report."""
        self.own_state = OwnState(keeps_copies)
        self._are_apart = False
        """Whether those in place stand at different places of the program."""
        self._orders = Orders(membership)
        self._world, self.is_preparing = self._orders.first_world()
        world, rank = self._world, self._rank_in(self._world)
        self.peers = Peers(self._client(world), peers_of(world), rank, timeout_seconds)
        self.made_for: Layout | None = self.layout
        self.followed = self.layout
        self.loop: Loop | None = None
        # Of this worker alone, until it is known who meets.
        self.memory = memory_of_one()
        bind_in(world, rank, cores)
        if self.is_preparing:
            self._catches_up(True)
            self.peers.meet_with([self.peers.own_index])
        else:
            self._enter()
        self.peers.renew = self._renew

    @property
    def layout(self) -> Layout:
        """Place of this worker among the others there are now; until new ones have come, among those in place."""
        some = self._is_due == "state" and not self.is_catching_up
        ranks = list(self.peers.present if some else range(len(self._world.members)))
        return Layout(len(ranks), ranks.index(self._rank_in(self._world)))

    @property
    def is_cut(self) -> bool:
        """Whether the exchange of this world is over."""
        return self.memory.world == self._world.number and self.memory.is_cut

    @property
    def is_resized(self) -> bool:
        """Whether the programs of a `fit` do not fit the workers that there are."""
        return self.layout != self.made_for

    @property
    def is_forming(self) -> bool:
        """Whether this worker has moved to a world in which programs cannot run yet: the others may come later."""
        return self.memory.world != self._world.number

    # Steps -------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], Result], state: StateOfStep[Result]) -> Result:
        """Run a step; when the world changes, run it again in the next one.

        Args:
            step: The step. What it computes is there when it returns, and an exception leaves the state as it was.
            state: What the step begins with.

        Returns:
            What the step returned: here, or, if others had completed it, there.

        Raises:
            ResizedError: Its programs do not fit the world in which it is to run.
        """
        if self.is_catching_up:
            self._arrive(state)
        while True:
            if self.membership.may_begin():
                try:
                    self._hand_round(state.shards(), has_stepped=False)
                    result = step()
                    self._hand_round(state.shards(), has_stepped=True)
                except Exception as error:
                    if not self.is_cut:
                        raise
                    logger.debug("A step was cut: %s", error)
                    state.put_back()
                else:
                    self.membership.completed()
                    self.own_state.completed()
                    return result
            if (taken := self._change(state)) is not None:
                self.own_state.returned()
                return taken

    def _hand_round(self, shards: Sequence[Shard], *, has_stepped: bool) -> None:
        self.own_state.hand_round(self.memory, self._world.number, self.layout, shards, has_stepped=has_stepped)

    def enter(self, state: StateOfStep[Any]) -> None:
        """Take part in the world that there is: meet the others where it begins, or where this worker comes later.

        Args:
            state: The state from which this worker goes on.

        Raises:
            ResizedError: Its programs do not fit that world.
        """
        if self.is_catching_up:
            self._arrive(state)
        # Its exchange may be over before the coordinator says so: then the others are on their way to the next world.
        while self.is_cut or not self.membership.goes:
            self._change(state)

    def begin_step(self, state: StateOfStep[Any]) -> bool:
        """Begin a step of a loop, in the next world where this one ends before it.

        Args:
            state: What the step begins with.

        Returns:
            Whether it is still the same world. If not, others may begin at `state` again, and so must this worker.

        Raises:
            ResizedError: Its programs do not fit the next world.
        """
        is_same = True
        while not self.membership.may_begin():
            self._change(state)
            is_same = False
        self._hand_round(state.shards(), has_stepped=False)
        return is_same

    def end_step(self, shards: Sequence[Shard]) -> None:
        """Note that the step of a loop is completed.

        Args:
            shards: What this worker has of values that are divided among several workers.

        Raises:
            PeerError: A worker is gone. The step does not count here; it may on others.
        """
        self._hand_round(shards, has_stepped=True)
        self.membership.completed()
        self.own_state.completed()

    def begin_program(self) -> None:
        """Let a program begin that workers run together, outside `fit`.

        Raises:
            UnsupportedError: The others have run it before this worker joined them.
        """
        if self.loop is not None:
            self.loop.begin_program()
        else:
            self._refuse_new_worker()

    def run_beside(self, step: Callable[[], Result]) -> Result:
        """Run a step that changes nothing of the state, as one of an evaluation. The coordinator does not count it.

        Raises:
            ResizedError: A worker is gone; the evaluation has to begin again, with those who are left.
            PeerError: One of them has come to the end of this evaluation, or has not come to the end of training.
        """
        self._refuse_new_worker()
        if not self.is_forming and self.layout != self.followed:  # others were lost when values were put together
            raise ResizedError
        if not self.is_forming:
            try:
                return step()
            except Exception as error:
                if not self.is_cut:
                    raise
                logger.debug("A step was cut: %s", error)
            self._follow_into_next_world()
        while True:
            if self._are_apart:
                raise PeerError(
                    "A worker was lost when only some of the others had reached the end of an evaluation or of "
                    "training.",
                    "The workers could not continue from the same place.",
                    "Start the run again; stratagem run --max-restarts does.",
                ).of_peer()
            try:
                with self.peers.not_renewed():
                    self._meet_in_memory()
                raise ResizedError
            except PeerError as error:
                self._check_cut(error)
                self._follow_into_next_world()

    def take_place(self) -> None:
        """Wait until this worker has its place among the others, if it prepares; else do nothing.

        Whoever asks for that place calls it before, and whoever begins to train.
        """
        with self._taking_place:
            if self.is_preparing:
                self.membership.prepared()
                self._follow_into_next_world(None)
                self.is_preparing = False

    def _refuse_new_worker(self) -> None:
        """Refuse a program that a new worker cannot run, as the others have run it without it.

        One that prepares waits first: as long as nobody needs it, the run is not to fail because of it.
        """
        if self.is_catching_up:
            self.take_place()
            raise another_step()

    def has_trained(self) -> None:
        """Tell the coordinator that nobody can come in any more: the `fit` is over that new workers begin with."""
        self.membership.closed()

    def catch_up(self) -> Given:
        """Return the state of the others, who wait for this worker. It begins with the step after it.

        The state is complete on this worker; it goes on alone until its first step.
        """
        self.take_place()
        given: Given | None = None
        while given is None:
            try:
                given = self._exchanged_state(None)
            except PeerError as error:
                self._check_cut(error)
                self._follow_into_next_world()
        return given

    def from_chief(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the first worker's arrays on all. All call it at the same point.

        Where a worker is gone each keeps its own: those who go on hold the same, unless the program is at fault.

        Args:
            arrays: Arrays of the same shapes and dtypes on all workers.
        """
        if self.is_catching_up or self._is_due is not None:
            return list(arrays)
        try:
            return send(self.peers, self.memory, "values of the chief", 0, arrays)
        except PeerError as error:
            self._check_cut(error)
            return list(arrays)

    def put_together(self, values: Sequence[jax.Array], use: Callable[[int, np.ndarray], None]) -> None:
        """Put values in shards together. All who are in place call it at the same point, between two steps.

        Args:
            values: Arrays, in the same order on all.
            use: Called with the number of each, and the whole; from the beginning again, where a worker is lost.

        Raises:
            UnsupportedError: This worker is new, and has not come to the others.
            PeerError: Shards are lost.
        """
        self._refuse_new_worker()
        while True:
            try:
                with self.peers.not_renewed():
                    if self.is_forming:
                        self._meet_in_memory()
                    self.own_state.shards.put_together(self.peers, self.memory, values, use)
                    self.peers.barrier("values in shards were put together")
                return
            except PeerError as error:
                self._check_cut(error)
                self._follow_into_next_world()

    # Orders ------------------------------------------------------------------------------------------

    def obey(self, order: Order) -> None:
        """Cut what is in flight, where an order says so. Called in the thread that listens."""
        if isinstance(order, End) or (isinstance(order, Stop) and order.cut):
            self.memory.cut(self._world.number if isinstance(order, End) else order.world, order.reason)

    def _change(self, state: StateOfStep[Result]) -> Result | None:
        """Follow the coordinator until steps may begin; return what a step returned that others had completed."""
        self._report_cut()
        taken: Result | None = None
        while True:
            try:
                if self._is_due == "state":
                    given = self._exchanged_state_that_fits(state)
                    taken = taken if given is None else state.take(given)
                    if self.own_state.has_new:
                        state.meet_new()
                self._report_formed()
                order = self._orders.next()
                if isinstance(order, Stop):
                    self.membership.stopped()
                elif isinstance(order, Form):
                    self._move(order.world)
                elif isinstance(order, Go):
                    self.peers.meet_with(range(self.layout.size))
                    return taken
            except PeerError as error:
                self._check_cut(error)

    def _renew(self, error: PeerError) -> bool:
        """Take this worker, which meets others between two steps, to where those of them who live meet again.

        A new worker is not among them before the next step.
        """
        if not self.is_over(error) or self.is_catching_up or threading.get_ident() != self._thread:
            return False
        self._follow_into_next_world()
        return True

    def _arrive(self, state: StateOfStep[Any]) -> None:
        """Come to the first step, for which the others wait, also in another world if one of them dies meanwhile."""
        while True:
            try:
                if self._is_due == "state" and self._exchanged_state_that_fits(state) is not None:
                    raise another_step()
                self._report_formed()
                order = self._orders.next()
                if isinstance(order, Form):
                    self._move(order.world)
                elif isinstance(order, Go):
                    break
            except PeerError as error:
                self._check_cut(error)
        self._catches_up(False)
        self.peers.meet_with(range(self.layout.size))

    def _catches_up(self, does: bool) -> None:
        self.is_catching_up = self.membership.is_busy = does

    def _report_formed(self) -> None:
        if self._is_due is not None:
            self._is_due = None
            self.membership.formed(self._world.number)

    def _report_cut(self) -> None:
        """Report that the exchange of this world is over, in case that the coordinator does not know."""
        if self.is_cut and self.membership.goes:
            self.membership.stopped()

    def _follow_into_next_world(self, seconds: float | None = PATIENCE_SECONDS) -> None:
        """Take this worker's place in the next world that comes about.

        Args:
            seconds: How long to wait for it; None for as long as the run lasts.
        """
        self._report_cut()
        while True:
            order = self._orders.next(seconds)
            if isinstance(order, Stop):
                self.membership.stopped()
            elif isinstance(order, Form):
                try:
                    return self._move(order.world)
                except PeerError as error:
                    self._check_cut(error)

    def is_over(self, error: BaseException) -> bool:
        """Return whether an error is due to the end of this world."""
        return isinstance(error, WorldChangedError) or self.is_cut

    def _check_cut(self, error: PeerError) -> None:
        """Raise an error of a world, unless it is that the world has ended: then the next one is on its way."""
        if not self.is_over(error):
            raise error
        logger.debug("%s", error)

    # Worlds ------------------------------------------------------------------------------------------

    def _client(self, world: World) -> WorldClient:
        return WorldClient(self.membership, world, jax.errors.JaxRuntimeError)

    def _rank_in(self, world: World) -> int:
        return world.rank_of(self.membership.number)

    def _move(self, world: World) -> None:
        """Take this worker's place in a world; all its members do."""
        self._world = world
        self.peers.move(self._client(world), peers_of(world), self._rank_in(world))
        bind_in(world, self._rank_in(world), self._cores)
        with self.peers.not_renewed():
            self._enter()

    def _enter(self) -> None:
        """Begin together, where all are new; else find out who can meet before the next step."""
        own = self.own_state.place if self.own_state.has_begun and not self.is_catching_up else None
        found = self.peers.from_all("in place", [self.own_state.has_begun, own])
        if any(has_trained for has_trained, _ in found):
            self._is_due = "state"
            self._catches_up(own is None)
            present = [rank for rank, (_, place) in enumerate(found) if place is not None]
            self._are_apart = own is not None and any(place not in (None, own) for _, place in found)
            self.peers.meet_with([self.peers.own_index] if own is None else present)
            return
        self._meet_in_memory()
        self.membership.formed(self._world.number)
        while not isinstance(order := self._orders.next(), Go):
            if isinstance(order, Form):
                return self._move(order.world)
        self.own_state.steps = 0

    def _meet_in_memory(self) -> None:
        """Let those who are present exchange through new memory. All of them call it."""
        meet_in_memory(self.peers, self.memory, self._world.number, self._reach)

    def _exchanged_state(self, state: StateOfStep[Any] | None) -> Given | None:
        """Let those who do not hold the newest state take it from one that does; return it where this worker did.

        All call it, at the step from which the world begins.
        """
        before = self.peers.present
        self.peers.meet_with(range(len(self._world.members)))
        try:
            with self.peers.not_renewed():
                # Some build their model, and some evaluate.
                self.peers.barrier("the step from which a world begins", HANG_SECONDS)
                self._meet_in_memory()
                whole = Layout(len(self._world.members), self._rank_in(self._world))
                given = self.own_state.exchange(self.peers, self.memory, self._world.number, whole, state)
            self._is_due = "formed"
            return given
        finally:
            self.peers.meet_with(before)

    def _exchanged_state_that_fits(self, state: StateOfStep[Any]) -> Given | None:
        """Do the same; unwind what runs where its programs do not fit this world."""
        given = self._exchanged_state(state)
        if self.is_resized:
            self._catches_up(True)
            self.peers.meet_with([self.peers.own_index])
            raise ResizedError(given or self.own_state.given_by(state))
        return given
