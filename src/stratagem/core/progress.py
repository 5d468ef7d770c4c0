"""Activity of this process: reading input, compiling, in a step. The training loop marks it, the watchdog reads it.

A mark is one assignment of a tuple, which other threads see whole. A phase costs about three microseconds (measured on
a loaded machine); a step of `fit` has two. The seconds of each phase are added up (`Progress.spent`).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

from stratagem.core import environment
from stratagem.core.clock import Clock
from stratagem.core.counters import ENDED, CountersFile
from stratagem.core.spent import Spent

_LONG: Final = 0.05
"""Seconds of a phase that is written down when it ends, also without a step."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LEARNING: Final = 0.1
"""How much a step counts in what a step usually takes."""


class Phase(enum.StrEnum):
    """Activity of a process, in words that end the sentence "worker 1 has been ..."."""

    OUTSIDE = "between steps"
    INPUT = "reading its input"
    COPYING = "putting a batch on its devices"
    COMPILING = "compiling a step, or in the first run of it"
    STEP = "in a step"
    MEETING = "waiting for the others"
    FETCHING = "waiting for the first task"
    SAVING = "writing or reading a checkpoint"
    ENDED = "at the end of its program"


class Mark(NamedTuple):
    """A moment of a process.

    Args:
        phase: What it does.
        steps: Steps that it has finished.
        since: When the phase began, on the clock of the process.
        joints: Places that it has come to where nobody goes on alone; in one program, all tasks count them alike.
        place: Where in the program, as far as others wait there too.
        is_joint: Whether it surely cannot go on from there before all others have come there.
        called: The method of a model that it is in, such as `evaluate`.
    """

    phase: Phase
    steps: int
    since: float
    joints: int = 0
    place: str = ""
    is_joint: bool = False
    called: str = ""


_PART_OF: Final = {
    Phase.OUTSIDE: "between",
    Phase.INPUT: "input",
    Phase.COPYING: "copying",
    Phase.COMPILING: "compiling",
    Phase.STEP: "computing",
    Phase.MEETING: "waiting",
    Phase.FETCHING: "waiting",
    Phase.SAVING: "saving",
}
"""The part of `Spent` that each phase counts for; a process that has come to its end spends nothing more."""

_PLACE_OF: Final = {phase: Spent._fields.index(part) for phase, part in _PART_OF.items()} | {Phase.ENDED: ENDED}
_STARTING: Final = Spent._fields.index("starting")
_OUTSIDE: Final = _PLACE_OF[Phase.OUTSIDE]
_COMPUTING: Final = _PLACE_OF[Phase.STEP]
_EXCHANGING: Final = Spent._fields.index("exchanging")
_WAITING: Final = _PLACE_OF[Phase.MEETING]


def part_of(phase: Phase, steps: int) -> str:
    """Return what a process in a phase spends its seconds on: the name of a field of `Spent`, or "ended".

    Args:
        phase: What it does.
        steps: Steps that it has finished.

    Example:
        >>> part_of(Phase.STEP, 7), part_of(Phase.OUTSIDE, 0)
        ('computing', 'starting')
    """
    part = _PART_OF.get(phase, "ended")
    return "starting" if part == "between" and not steps else part


class Progress:
    """The marks of one process.

    Args:
        clock: Where time comes from.
        file: Where others read how far the process has come, also when it was killed.

    Attributes:
        longest_step: Seconds of its longest step.
        usual_step: Seconds that a step takes it, as a moving average.
        waited_for_input: Seconds in which no step was running while it had no batch.
        loss: The latest loss that was noted; NaN before the first.
        behind_step: Called behind steps with their number so far, where somebody wants to know.

    Example:
        >>> progress = Progress()
        >>> with progress.during(Phase.STEP, steps=1):
        ...     progress.mark.phase.value
        'in a step'
        >>> progress.mark.phase.name, progress.mark.steps
        ('OUTSIDE', 1)
        >>> progress.spent.computing > 0
        True
    """

    def __init__(self, clock: Clock | None = None, file: CountersFile | None = None) -> None:
        self.clock = clock or Clock()
        self._now = self.clock.now
        self.mark = Mark(Phase.OUTSIDE, 0, self._now())
        self.longest_step = 0.0
        self.usual_step = 0.0
        self.waited_for_input = 0.0
        self.behind_step: Callable[[int], None] | None = None
        self._seconds = [0.0] * (ENDED + 1)  # of phases that have ended; exchanges count as computing here
        self._exchanged = 0.0
        self._waited = 0.0
        self.loss = math.nan
        self._file = file

    def enter(self, phase: Phase, more_steps: int = 0, place: str = "", is_joint: bool = False) -> None:
        """Begin a phase.

        Args:
            phase: What the process does now.
            more_steps: Steps that have come to their end with the phase before.
            place: Where in the program.
            is_joint: Whether it surely cannot go on from there before all others have come there.
        """
        before, now = self.mark, self._now()
        part = _PLACE_OF[before[0]]
        self._seconds[_STARTING if part == _OUTSIDE and not before[1] else part] += now - before[2]
        steps = before[1] + more_steps
        self.mark = Mark(phase, steps, now, before[3] + is_joint, place, is_joint, before[6])
        if self._file is not None:
            if more_steps:
                self._file.stepped(steps)
            if more_steps or now - before[2] > _LONG:
                self._file.counted(now, self._spent_by(now)[:ENDED])
            self._file.entered(_PLACE_OF[phase], now)
        if more_steps and self.behind_step is not None:
            self.behind_step(steps)

    @property
    def spent(self) -> Spent:
        """The seconds of this process so far, by what they were spent on. Any thread may ask."""
        return Spent(*self._spent_by(self._now())[:ENDED])

    def _spent_by(self, now: float) -> list[float]:
        mark, seconds = self.mark, self._seconds.copy()
        part = _PLACE_OF[mark[0]]
        seconds[_STARTING if part == _OUTSIDE and not mark[1] else part] += now - mark[2]
        exchanged, waited = self._exchanged, self._waited
        seconds[_COMPUTING] -= exchanged + waited
        seconds[_EXCHANGING] += exchanged
        seconds[_WAITING] += waited
        return seconds

    def exchanged(self, seconds: float, waited: float) -> None:
        """Count an exchange between workers within a step, also in a thread of XLA's.

        In the first run of a step it counts as a part of that, as others may compile longer.

        Args:
            seconds: How long it took.
            waited: How much of that was spent waiting for others.
        """
        if self.mark[0] is Phase.STEP:
            self._exchanged += seconds - waited
            self._waited += waited

    def note_loss(self, loss: float) -> None:
        """Let others see the latest loss."""
        self.loss = loss
        if self._file is not None:
            self._file.note_loss(loss, self._now())

    def note_ready(self, batches: int) -> None:
        """Let others see how many batches were ready when the last one was asked for."""
        if self._file is not None:
            self._file.note_ready(batches)

    def note_pending(self, functions: int) -> None:
        """Let others see how many functions that this process has scheduled have not ended."""
        if self._file is not None:
            self._file.note_pending(functions)

    @property
    def wants_loss(self) -> bool:
        """Whether others want to see a newer loss: once a second."""
        return self._file is not None and self._file.is_loss_due(self._now())

    def join(self) -> None:
        """Note that this process trains together with others."""
        if self._file is not None:
            self._file.join()

    def during(self, phase: Phase, steps: int = 0, place: str = "", is_joint: bool = False) -> _During:
        """Return a context in which the process is in a phase; after it, in the phase before.

        Args:
            phase: What the process does.
            steps: Steps to count when it ends well.
            place: Where in the program.
            is_joint: Whether it surely cannot go on from there before all others have come there.
        """
        return _During(self, phase, steps, place, is_joint)

    @contextlib.contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Note that the process is in a method of a model.

        Args:
            method: Its name.
        """
        outer = self.mark.called
        self.mark = self.mark._replace(called=method)
        try:
            yield
        finally:
            self.mark = self.mark._replace(called=outer)

    def _took(self, seconds: float) -> None:
        """Learn from a step how long steps take."""
        self.longest_step = max(self.longest_step, seconds)
        # A moving average. One long step, as by a checkpoint of another task, moves it little, and not for long.
        self.usual_step += (seconds - self.usual_step) * (_LEARNING if self.usual_step else 1.0)


class _During:
    """A phase with an end. A class, because a generator would cost three times as much."""

    __slots__ = ("_began", "_is_joint", "_outer", "_phase", "_place", "_progress", "_steps", "seconds")

    def __init__(self, progress: Progress, phase: Phase, steps: int, place: str, is_joint: bool) -> None:
        self._progress = progress
        self._phase = phase
        self._steps = steps
        self._place = place
        self._is_joint = is_joint

    def __enter__(self) -> _During:
        self._outer = self._progress.mark
        self._progress.enter(self._phase, 0, self._place, self._is_joint)
        self._began = self._progress.mark[2]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        progress, outer = self._progress, self._outer
        progress.enter(outer[0], self._steps if kind is None else 0, outer[4], outer[5])
        self.seconds = progress.mark[2] - self._began
        if self._phase is Phase.STEP:
            progress._took(self.seconds)


def _of_this_process(variables: Mapping[str, str]) -> Progress:
    path = variables.get(environment.COUNTERS_FILE)
    try:
        return Progress(file=CountersFile(Path(path)) if path else None)
    except OSError:  # the launcher that made the folder is gone
        return Progress()


progress: Final = _of_this_process(os.environ)
"""The marks of this process."""


def as_saving(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that does the same, in a phase of its own: what it takes counts as saving.

    Args:
        function: What writes or reads a file.
    """

    @functools.wraps(function)
    def counted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with progress.during(Phase.SAVING):
            return function(*args, **kwargs)

    return counted
