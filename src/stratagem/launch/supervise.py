"""The rules of running tasks: whose failure counts, which signal is due. Touches no process.

`local.py` reports what happened and sends what is due, so that every rule here is tested without
processes and without waiting.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from stratagem.core import exits
from stratagem.core.clock import Clock, Deadline

CAUSE_SECONDS: Final = 2.0
"""How long to wait, when a task says that it lost a peer, for the end of that peer."""

MOST_STARTS: Final = 1000
"""Processes that are started at most: something is wrong where so many die."""

SERVED_OUT_SECONDS: Final = 10.0
"""How long tasks that serve a chief may go on when it has ended; it tells them, so they do not need it."""


_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


@dataclass(frozen=True)
class Failure:
    """The end of a task that ended badly.

    Args:
        task: Its name, for instance `worker 0`.
        returncode: Exit code; minus the number of the signal that ended it.
        seconds: How long after the start of all tasks.
        num_ended: How many other tasks were ended because of it.
    """

    task: str
    returncode: int
    seconds: float
    num_ended: int = 0

    @property
    def exit_code(self) -> int:
        """The code a shell shows: 128 plus the signal, if one ended the task."""
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    @property
    def reason(self) -> str:
        """The end in words.

        Example:
            >>> Failure("worker 0", -9, 1.0).reason
            'was ended by SIGKILL'
        """
        if self.returncode in exits.MEANINGS:
            return f"{exits.MEANINGS[self.returncode]} (exit code {self.returncode})"
        if self.returncode >= 0:
            return f"failed with exit code {self.returncode}"
        try:
            return f"was ended by {signal.Signals(-self.returncode).name}"
        except ValueError:  # real-time signals have no name
            return f"was ended by signal {-self.returncode}"

    @property
    def remedy(self) -> str:
        """What to do, where a signal ended the task: it could not say so itself. Empty elsewhere.

        Example:
            >>> Failure("worker 0", -15, 1.0).remedy
            'Ask who sent it: a person, a scheduler, a terminal that was closed.'
        """
        if self.returncode >= 0:
            return ""
        if -self.returncode == signal.SIGKILL:
            return (
                "See whether the memory was full (`dmesg`, the scheduler's log). If it was, use less memory, or "
                "fewer workers."
            )
        if -self.returncode in _CRASHES:
            return "It crashed in native code. Look at its last lines, and at the last call in its stacks."
        return "Ask who sent it: a person, a scheduler, a terminal that was closed."


class Supervisor:
    """Follow one generation of tasks from start to end.

    The first failure, or an interrupt, ends everybody: a signal that asks, a grace time, SIGKILL.
    The ends of other tasks after that are consequences and do not count.

    Args:
        tasks: Names of the tasks, which begin with their types.
        grace_seconds: Time between the signal that asks and SIGKILL.
        clock: Where time comes from.
        replacements: How many lost tasks may be started again, where there are parameter servers.
        replaces_workers: Whether workers of theirs are started again each time, which does not count.
    """

    def __init__(
        self,
        tasks: Collection[str],
        grace_seconds: float,
        clock: Clock,
        *,
        replacements: int = 0,
        replaces_workers: bool = False,
    ) -> None:
        self.running = set(tasks)
        has_servers = any(_type(task) == "ps" for task in tasks)
        self._dispensable = {task for task in tasks if has_servers and _type(task) == "worker"}
        """Those that the others can do without: workers that a chief hands work to."""
        self._servants = self._dispensable | {task for task in tasks if _type(task) == "ps"}
        """Those that serve a chief. They end when the other tasks have."""
        self._replaceable = self._servants | {task for task in tasks if has_servers and _type(task) == "chief"}
        """Those that may be started again alone."""
        self._replacements = replacements
        self.num_replaced = 0
        """Number of starts that count against `replacements`: not those of tasks that only followed another."""
        self._free_starts = MOST_STARTS if replaces_workers else 0
        self._chief_may_follow = False
        self._left_alone: Deadline | None = None
        self._lost: list[Failure] = []
        self.failure: Failure | None = None
        self.interrupt: int | None = None
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._start = clock.now()
        self._suspected: Deadline | None = None
        self._grace: Deadline | None = None
        self._due: int | None = None
        self._returncodes: set[int] = set()
        self._killed = False

    @property
    def exit_code(self) -> int:
        """The launcher's exit code: that of the first failure, 128 + signal after an interrupt, or 0.

        When it was asked to end, and all tasks saved what they had done, it says so as they do.
        """
        if self.interrupt is not None:
            has_saved = exits.PREEMPTED in self._returncodes and self._returncodes <= {0, exits.PREEMPTED}
            return exits.PREEMPTED if has_saved else 128 + self.interrupt
        return 0 if self.failure is None else self.failure.exit_code

    def ended(self, returncodes: dict[str, int]) -> None:
        """Take note of tasks that have ended since the last call.

        Args:
            returncodes: Exit code of each; minus the signal that ended it.
        """
        self.running -= returncodes.keys()
        self._returncodes |= set(returncodes.values())
        bad = [(task, code) for task, code in returncodes.items() if code != 0]
        if self._grace is not None:
            return
        if self._is_served_out and self._servants.issuperset(task for task, _ in bad):
            # Those that were served have ended well; how the others end does not matter any more.
            self._left_alone = self._left_alone or Deadline(SERVED_OUT_SECONDS, self._clock)
            return
        # A chief ends because of a server, so the server comes first.
        bad = [end for end in sorted(bad, key=lambda end: end[1] == exits.PEER_LOST) if not self._is_lost(*end)]
        if not bad:
            return
        # Seen together, their order is unknown; one that a signal ended did not end because of its peers.
        task, code = min(bad, key=lambda end: (end[1] == exits.PEER_LOST, end[1] >= 0))
        if self.failure is None or code != exits.PEER_LOST:
            self.failure = Failure(task, code, self._clock.now() - self._start, len(self.running))
        if code != exits.PEER_LOST:
            self._begin_to_end(signal.SIGTERM)
        elif self._suspected is None:
            # It ended because of a peer, perhaps of this machine: that one is the cause, if it shows.
            self._suspected = Deadline(CAUSE_SECONDS, self._clock)

    @property
    def _is_served_out(self) -> bool:
        """Whether only tasks run that serve others."""
        return bool(self._servants) and self.running <= self._servants and self.failure is None

    def _is_lost(self, task: str, code: int) -> bool:
        """Whether the end of a task is no failure: it is started again, or the others can do without it."""
        if task not in self._replaceable or not exits.is_retryable(code):
            return False
        follows = self._chief_may_follow and code == exits.PEER_LOST and task not in self._servants
        is_free = task in self._dispensable and self._free_starts > 0
        if not (follows or is_free) and self.num_replaced >= self._replacements:
            return task in self._dispensable
        self._free_starts -= is_free
        self.num_replaced += not (follows or is_free)
        # The chief of a server that was lost ends too, once, and begins anew with it.
        if task not in self._dispensable:
            self._chief_may_follow = task in self._servants
        self.running.add(task)
        self._lost.append(Failure(task, code, self._clock.now() - self._start))
        return True

    def lost_tasks(self) -> list[Failure]:
        """Return the ends of those tasks that must be started again now, once."""
        lost, self._lost = self._lost, []
        return lost

    def interrupted(self, signal_number: int) -> None:
        """Take note of a signal to the launcher. The first asks the tasks to end; a second one kills at once."""
        if self._grace is None:
            self.interrupt = signal_number
            # Python turns SIGINT into KeyboardInterrupt, which programs expect of Ctrl-C. It ignores SIGPIPE.
            self._begin_to_end(signal.SIGINT if signal_number == signal.SIGINT else signal.SIGTERM)
        elif not self._killed:
            self._kill()

    def signal_due(self) -> int | None:
        """Return the signal that every running task must get now, once; None most of the time."""
        waits = [wait for wait in (self._suspected, self._left_alone) if wait is not None]
        if self._grace is None and any(wait.expired for wait in waits):
            self._begin_to_end(signal.SIGTERM)
        if self._grace is not None and self._grace.expired and not self._killed:
            self._kill()
        due, self._due = self._due, None
        return due

    def seconds_until_due(self) -> float | None:
        """Return how long nothing will be due; None if only an event can change that."""
        if self._due is not None:
            return 0.0
        if self._killed:
            return None
        next_due = self._grace or self._suspected or self._left_alone
        return None if next_due is None else next_due.remaining

    def _begin_to_end(self, signal_number: int) -> None:
        self._due = signal_number
        self._grace = Deadline(self._grace_seconds, self._clock)

    def _kill(self) -> None:
        self._killed = True
        self._due = signal.SIGKILL


def _type(task: str) -> str:
    return task.partition(" ")[0]
