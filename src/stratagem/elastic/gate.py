"""A member's side of the protocol, without a connection: which steps it may begin, what it tells the coordinator."""

from __future__ import annotations

from stratagem.elastic.events import Begun, End, Finished, Form, Formed, Go, Order, Prepare, StopAfter, Stopped
from stratagem.elastic.world import WorldChangedError


class Gate:
    """Stands before each step of a member. Not for several threads; who uses it from some, locks it.

    Args:
        number: The number of the member.

    Attributes:
        world: The number of the world that this member forms or trains in; 0 before the first.
        begun: How many steps it has begun.
        completed: How many steps it has completed.
        goes: Whether the world runs, so that steps may be begun.
        holds_state: Whether it holds the state after those steps. One that is new does so when it has formed a world.
        has_finished: Whether its program has come to its end.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.world = 0
        self.begun = 0
        self.completed = 0
        self.holds_state = False
        self.has_finished = False
        self._target = 0
        self.goes = False
        self._is_held = False
        self._last: int | None = None
        self._saves_behind: int | None = None
        self._reason = ""

    def hear(self, order: Order) -> Begun | Stopped | Finished | None:
        """Take an order in; return what is to be answered at once.

        A stop is answered for a member that is between two steps, however long it stays there, as nothing of it is in
        flight. That it answers once more itself does no harm. One that has finished says so in each world: its report
        may have come too late for the world before, and without it the others would wait for ever.

        Args:
            order: What the coordinator says. What belongs to an earlier world changes nothing.
        """
        if isinstance(order, Form):
            self.world, self._target, self.goes = order.world.number, order.world.step, False
            self._is_held, self._last, self._saves_behind = False, None, None
            return self.finished() if self.has_finished else None
        elif isinstance(order, End):
            self.goes, self._is_held, self._last, self._reason = False, False, None, order.reason
        elif isinstance(order, Prepare) or order.world != self.world:
            return None
        elif isinstance(order, Go):
            self.goes, self._is_held, self._last = True, False, None
        elif isinstance(order, StopAfter):
            self._last, self._saves_behind = order.step, order.step if order.saves else None
            return self.stopped() if self.completed == order.step else None
        elif order.cut:
            is_between = self.goes and self.begun == self.completed
            self.goes, self._is_held, self._last, self._reason = False, False, None, order.reason
            return self.stopped() if is_between else None
        else:
            self._is_held, self._reason = True, order.reason
            return Begun(self.number, self.world, self.begun)
        return None

    def may_begin(self) -> bool | None:
        """Return whether the next step is to be done; None where that will be known only after another order.

        Where it is, the step counts as begun.
        """
        if not self.goes:
            return False
        if self._is_held and self._last is None:
            return None
        if self._last is not None and self.begun >= self._last:
            return False
        self.begun += 1
        return True

    @property
    def ends_here(self) -> bool:
        """Whether the run ends behind the step that this member has completed, so that it is to save now.

        A cut does not change that: members that hear of it before they save, and behind, do the same.
        """
        return self._saves_behind == self.completed

    @property
    def reason(self) -> str:
        """Why no step may be begun, in words."""
        return self._reason

    def complete(self) -> None:
        """Note that the step that was begun is completed."""
        self.completed = self.begun

    def stopped(self) -> Stopped:
        """Return the report that this member has stopped. A step that was begun and not completed is forgotten."""
        self.begun = self.completed
        return Stopped(self.number, self.world, self.completed)

    def finished(self) -> Finished:
        """Return the report that the program of this member has come to its end."""
        self.has_finished = True
        return Finished(self.number, self.world, self.completed)

    def formed(self, world: int) -> Formed:
        """Return the report that this member is in the exchange of a world, and holds the state of its first step.

        Args:
            world: The number of the world.

        Raises:
            WorldChangedError: Another one has taken its place.
        """
        if world != self.world:
            raise WorldChangedError(world, f"world {self.world} takes its place")
        self.begun = self.completed = self._target
        self.holds_state = True
        return Formed(self.number, self.world)
