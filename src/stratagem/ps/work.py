"""Scheduled work: closures with what they need, who waits for them, and the errors that the program is told."""

from __future__ import annotations

import itertools
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from stratagem.core.errors import UnavailableError
from stratagem.core.progress import progress
from stratagem.ps.dispatch import Abort, Awaited, Commit, Dispatch, Event, Raised, Scheduled, Send
from stratagem.ps.shared import Shared

MOST_QUEUED: Final = 1 << 16
"""How many functions may wait for workers; `schedule` then waits too. (TensorFlow's bound is four times that.)"""


@dataclass(slots=True)
class Job:
    """A closure with what it takes to run it.

    Args:
        payload: Function and arguments, pickled.
        needs: The shared values that it refers to.
        result: Its result, once it is there; cancelled where it was aborted.
    """

    payload: bytes
    needs: frozenset[Shared]
    result: Future[Any] = field(default_factory=Future)


class Work(ABC):
    """Closures that the program has scheduled. Any thread may call a method whose name has no underscore.

    A subclass sends closures to workers, and calls `_handle` with what becomes of them.

    Args:
        dispatch: Says which closure runs where, and when.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.has_told_of_loss = False
        """Whether the program has been told, in this term, that a parameter server was lost."""
        self._changed = threading.Condition()
        """Held whenever something is looked at or changed; notified when somebody may be waiting for it."""
        self._jobs: dict[int, Job] = {}
        self._shared: weakref.WeakValueDictionary[int, Shared] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def share(self, data: bytes, needs: frozenset[Shared] = frozenset(), *, to_call: bool) -> Shared:
        """Take in a value that workers shall hold; each gets it with the first closure that needs it.

        Args:
            data: Pickled value, or function that returns it.
            needs: Shared values that it refers to.
            to_call: Whether it is such a function.

        Returns:
            What the caller keeps as long as workers shall hold the value.
        """
        with self._changed:
            shared = Shared(next(self._numbers), data, to_call, needs)
            self._shared[shared.number] = shared
            return shared

    def schedule(self, job: Job) -> None:
        """Queue a closure; wait while too many are queued.

        Raises:
            Exception: The error of an earlier closure; this one is not queued.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.dispatch.error is not None or len(self.dispatch.queued) < MOST_QUEUED)
            self._raise_if_due()
            number = next(self._numbers)
            self._jobs[number] = job
            self._handle(Scheduled(number))

    def join(self) -> None:
        """Wait until every closure has run.

        Raises:
            Exception: The error of a closure; nothing is left running.
        """
        with self._changed:
            self._changed.wait_for(self._is_done)
            self._raise_if_due()

    def done(self) -> bool:
        """Return whether every closure has run; raise the error of one."""
        with self._changed:
            self._raise_if_due()
            return self._is_done()

    def wait_for(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something that results tell holds, and no server is applying a round.

        What the program reads next would otherwise be new on one server and old on another.

        Args:
            holds: Looks at it.
            seconds: How long to wait; None until the cluster says that it will not come.
        """
        with self._changed:
            return self._changed.wait_for(lambda: holds() and not self.dispatch.rounds.is_committing, seconds)

    def raise_if_broken(self) -> None:
        """Raise the error because of which the cluster can do no more in this term, if there is one."""
        with self._changed:
            if self.dispatch.broken:
                self._raise_if_due()

    def tell(self, error: BaseException) -> None:
        """Take note of an error that the program is told."""
        self.has_told_of_loss |= self.dispatch.broken and isinstance(error, UnavailableError)

    def counts(self) -> dict[str, int]:
        """Return how many closures are queued and in flight, workers are up, and what has happened so far."""
        with self._changed:
            return {
                "queued": len(self.dispatch.queued),
                "in flight": len(self.dispatch.running),
                "workers up": len(self.dispatch.in_flight),
                **dict.fromkeys(("scheduled", "finished", "failed", "aborted", "retried", "workers lost"), 0),
                **dict.fromkeys(("rounds", "dropped"), 0),
                **self.dispatch.counts,
            }

    # The lock is held in all that follows.

    def _is_done(self) -> bool:
        """Return whether all is done; where the open round waits for closures, let it be applied without them."""
        if self.dispatch.waits_for_more:
            self._handle(Awaited())
        return self.dispatch.is_idle

    def _raise_if_due(self) -> None:
        if self.dispatch.error is None:
            return
        self._changed.wait_for(lambda: self.dispatch.due is not None)
        error = self.dispatch.due
        assert error is not None
        self._handle(Raised())
        self.tell(error)
        raise error

    def _handle(self, event: Event) -> None:
        """Let the machine react, and do what it says."""
        for instruction in self.dispatch.handle(event):
            if isinstance(instruction, Abort):
                self._jobs.pop(instruction.closure).result.cancel()
                self._changed.notify_all()
            else:
                self._carry_out(instruction)
        progress.note_pending(len(self._jobs))

    @abstractmethod
    def _carry_out(self, instruction: Send | Commit) -> None:
        """Let the cluster do what the machine says."""
