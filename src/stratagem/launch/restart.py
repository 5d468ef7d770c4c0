"""The rules of restarting: whether a generation follows a failure, with how many workers, after which pause."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratagem.core import exits
from stratagem.core.errors import ClusterError
from stratagem.launch.supervise import Failure

LONGEST_PAUSE_SECONDS: Final = 300.0
"""Pauses between generations that fail at once grow to this."""

STEPLESS_GENERATIONS: Final = 2
"""So many generations in a row without a step mean that a worker cannot come back."""


@dataclass(frozen=True)
class Restarts:
    """The arguments of `stratagem run` about failures.

    Args:
        at_most: How many failures may be followed by another generation, or by another life of a task alone.
        on: `any` failure, or only `retryable` ones (`core.exits`).
        backoff_seconds: Pause after a generation that failed before its first step; doubled when the next one
            does too.
        min_workers: With how few workers a run may go on; None for no fewer than it began with.
        replaces_workers: Whether workers of parameter servers are started again each time they are lost, which does not
            count.

    Raises:
        ClusterError: The values contradict one another.
    """

    at_most: int = 0
    on: str = "any"
    backoff_seconds: float = 1.0
    min_workers: int | None = None
    replaces_workers: bool = False

    def check(self, workers: int, nodes: int) -> None:
        """Refuse what cannot be done with so many workers on so many nodes."""
        if self.min_workers is None:
            return
        if not 1 <= self.min_workers <= workers:
            raise ClusterError(
                f"--min-workers is {self.min_workers}, --workers is {workers}.",
                f"Write a number from 1 to {workers}.",
            )
        if not self.at_most:
            raise ClusterError(
                f"--min-workers is {self.min_workers}, and there is no --max-restarts.",
                "The first failure ends the run, with any number of workers.",
                "Add --max-restarts N.",
            )
        if nodes > 1:
            raise ClusterError(
                f"--min-workers is {self.min_workers}, --nodes is {nodes}.",
                "Each launcher knows only the workers of its own machine, so the launchers would describe different "
                "clusters.",
                "Leave --min-workers out. With --max-restarts the launchers wait for a machine that comes back.",
            )


@dataclass(frozen=True)
class Generation:
    """One life of the group.

    Args:
        number: Which, from 1.
        workers: How many workers it had.
        seconds: How long it lived.
        steps: Steps that its fastest task finished.
        num_replaced: How many of its tasks were started again alone.
        failure: What ended it; None if it ended well or was interrupted.
        failed_after_step: The last step of the task that failed.
        log: The log of the task that failed.
    """

    number: int
    workers: int
    seconds: float
    steps: int
    failure: Failure | None = None
    num_replaced: int = 0
    failed_after_step: int = 0
    log: Path | None = None

    def __str__(self) -> str:
        end = "ended well" if self.failure is None else f"{self.failure.task} {self.failure.reason}"
        step = f"after step {self.failed_after_step if self.failure else self.steps}"
        log = "" if self.log is None else f" ({self.log})"
        return f"generation {self.number}, {count_workers(self.workers)}: {end} after {self.seconds:.1f} s, {step}{log}"


def count_workers(number: int) -> str:
    """Return a number of workers in words."""
    return f"{number} worker{'s' if number > 1 else ''}"


@dataclass(frozen=True)
class Next:
    """The generation to come.

    Args:
        workers: With how many workers.
        pause_seconds: When, from now.
    """

    workers: int
    pause_seconds: float


class History:
    """The generations of one run.

    Args:
        restarts: What the user asked for.
        workers: How many workers the run should have.
    """

    def __init__(self, restarts: Restarts, workers: int) -> None:
        self.generations: list[Generation] = []
        self._restarts = restarts
        self._workers = workers

    def next_after(self, generation: Generation) -> Next | None:
        """Note how a generation ended; return what follows, or None if that was the last one."""
        self.generations.append(generation)
        failure = generation.failure
        if failure is None or not self._restarts.at_most or self._num_counted > self._restarts.at_most:
            return None
        if self._restarts.on == "retryable" and not exits.is_retryable(failure.returncode):
            return None
        stepless = self._count_at_end(lambda each: each.steps == 0)
        backoff = self._restarts.backoff_seconds
        longest = max(LONGEST_PAUSE_SECONDS, backoff)
        pause = min(longest, backoff * 2.0 ** min(stepless - 1, 100)) if stepless else 0.0
        return Next(self._next_workers(generation), pause)

    @property
    def restarts_left(self) -> int:
        """How many failures may still be followed by a start."""
        return max(0, self._restarts.at_most - self._num_counted)

    @property
    def summary(self) -> str:
        """All generations, a line each."""
        return "\n".join(["", f"== {len(self.generations)} generations", *map(str, self.generations)])

    @property
    def _num_counted(self) -> int:
        """How many failures count. A preemption does not, unless the run gets nowhere at all."""
        return sum(
            each.num_replaced
            + (each.failure is not None and (each.failure.returncode != exits.PREEMPTED or each.steps == 0))
            for each in self.generations
        )

    def _next_workers(self, last: Generation) -> int:
        if self._restarts.min_workers is None or last.steps:
            return self._workers
        in_vain = self._count_at_end(lambda each: each.steps == 0 and each.workers == last.workers)
        fewer = last.workers - 1 if in_vain >= STEPLESS_GENERATIONS else last.workers
        return max(self._restarts.min_workers, fewer)

    def _count_at_end(self, holds: Callable[[Generation], bool]) -> int:
        """Return for how many of the last generations, without a gap, something holds."""
        return len(list(itertools.takewhile(holds, reversed(self.generations))))
