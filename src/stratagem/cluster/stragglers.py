"""The rule that names a worker that is slower than the others, and what it is slow in. Pure functions of counters.

Workers train in step, so each takes as long for a step as the slowest one: the others wait for it. Waiting is told
apart from working by what workers count themselves (`core.spent`). A worker is slow where its own work takes longer
than that of the others by a share of a step that matters, in two stretches of time one behind the other.

The rule follows what TraceML does for PyTorch (input, compute and wait apart; waiting is discounted).
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from stratagem.core.spent import Spent

STRETCH_SECONDS: Final = 3.5
"""Least length of a stretch. Two of them and a beat are less than the 10 s within which a slow worker is named."""

LEAST_STEPS: Final = 4
"""Steps that a stretch has at least: a reading falls anywhere within a step."""

SHARE: Final = 0.15
"""The part of a step by which a worker must be slower than the others."""

SECONDS: Final = 0.004
"""Seconds of a step by which it must be slower: a progress bar and a busy system take less."""

COMPILING: Final = 0.05
"""A stretch with more compiling than this share says nothing: workers compile for different times."""

WORK: Final = ("input", "copying", "computing", "exchanging", "between")
"""Parts of a step that are a worker's own. Saving is not: the chief alone may write."""

_ALWAYS_COUNTED: Final = ("input", "copying", "between")
"""Those that are known also where workers exchange within a program that nobody looks into (NCCL, Gloo)."""

_WHAT: Final = {
    "input": ("waits for its input", "Look at what its dataset does there; read further ahead, or from a nearer disk."),
    "copying": ("copies batches to its devices", "Look at what else uses its memory and devices."),
    "computing": ("computes", "Look at what else runs on its cores or devices, and at their clock."),
    "exchanging": ("copies and adds what is exchanged", "Look at what else uses its memory."),
    "between": ("spends time between steps", "Look at its callbacks, and what its program does between steps."),
}


class Reading(NamedTuple):
    """The counters of a worker at a moment.

    Args:
        clock: The moment, on the worker's own monotonic clock, in seconds.
        steps: Steps that it has finished.
        spent: What its seconds were spent on until then.
    """

    clock: float
    steps: int
    spent: Spent


class Straggler(NamedTuple):
    """A worker that is slower than the others.

    Args:
        task: Its place among the workers.
        part: What it is slow in: the name of a field of `Spent`.
        extra: Seconds of a step that it takes longer for that than the others do.
        step: Seconds of a step.
    """

    task: int
    part: str
    extra: float
    step: float

    def described(self, name: str) -> str:
        """Return the sentences for a person.

        Args:
            name: What to call the worker.

        Example:
            >>> Straggler(1, "input", 0.0213, 0.0431).described("worker 1")
            'worker 1 is slow: it waits for its input 21.3 ms longer than the others in each step of 43.1 ms, and they \
wait for it. Look at what its dataset does there; read further ahead, or from a nearer disk.'
        """
        what, advice = _WHAT[self.part]
        return (
            f"{name} is slow: it {what} {self.extra * 1e3:.1f} ms longer than the others in each step of "
            f"{self.step * 1e3:.1f} ms, and they wait for it. {advice}"
        )


class Stragglers:
    """Readings of all workers, and who was named."""

    def __init__(self) -> None:
        self._readings: list[deque[Reading]] = []
        self._named: set[tuple[int, str]] = set()

    def look(self, readings: Sequence[Reading]) -> Straggler | None:
        """Take the newest readings, about once a second; return a worker that is to be named now.

        Each worker is named once for each part.

        Args:
            readings: Those of all workers, always in the same order.
        """
        if len(readings) != len(self._readings):
            self._readings = [deque() for _ in readings]
        for kept, reading in zip(self._readings, readings, strict=True):
            if not kept or reading.clock > kept[-1].clock:
                kept.append(reading)
        if len(readings) < 2:
            return None
        stretch = self._stretch()
        found = [self._slow_in(stretch, behind) for behind in (0.0, stretch)]
        self._forget(2 * stretch + 2 * STRETCH_SECONDS)
        latest, earlier = found
        if latest is None or earlier is None or latest[:2] != earlier[:2] or latest[:2] in self._named:
            return None
        self._named.add(latest[:2])
        return latest

    def _stretch(self) -> float:
        """Return the seconds of a stretch: enough for some steps."""
        longest = 0.0
        for kept in self._readings:
            seconds, steps = kept[-1].clock - kept[0].clock, kept[-1].steps - kept[0].steps
            longest = max(longest, seconds / steps if steps else 0.0)
        return max(STRETCH_SECONDS, (LEAST_STEPS + 1) * longest)

    def _slow_in(self, stretch: float, behind: float) -> Straggler | None:
        """Return who was slow in a stretch of time that ended so many seconds ago."""
        spent, steps = [], []
        for kept in self._readings:
            end = kept[-1].clock - behind
            first = next((each for each in reversed(kept) if each.clock <= end - stretch), None)
            last = next((each for each in reversed(kept) if each.clock <= end), None)
            if first is None or last is None or last.steps - first.steps < LEAST_STEPS:
                return None
            spent.append(last.spent.since(first.spent))
            steps.append(last.steps - first.steps)
        return find_straggler(spent, steps)

    def _forget(self, seconds: float) -> None:
        for kept in self._readings:
            while len(kept) > 2 and kept[1].clock < kept[-1].clock - seconds:
                kept.popleft()


def find_straggler(spent: Sequence[Spent], steps: Sequence[int]) -> Straggler | None:
    """Return the worker that held up the others most, if one did.

    Args:
        spent: Seconds of each worker, in about the same stretch of time.
        steps: Steps of each in it, at least one.

    Example:
        >>> quick, slow = Spent(computing=1.0, exchanging=0.1, waiting=0.9), Spent(computing=1.9, exchanging=0.1)
        >>> find_straggler([quick, slow], [10, 10])
        Straggler(task=1, part='computing', extra=0.09, step=0.2)
    """
    if any(each.total <= 0 or each.starting or each.compiling > COMPILING * each.total for each in spent):
        return None
    step = statistics.median(each.total / count for each, count in zip(spent, steps, strict=True))
    # Of each worker's own time: two readings of one worker are a second apart, and end at different places of a step.
    each_step = [{name: seconds * step / each.total for name, seconds in each._asdict().items()} for each in spent]
    sees_waits = all(each.exchanging for each in spent)
    parts = WORK if sees_waits else _ALWAYS_COUNTED
    work = [sum(own[part] for part in parts) for own in each_step]
    slowest = max(range(len(work)), key=work.__getitem__)
    gap = work[slowest] - statistics.median(work[:slowest] + work[slowest + 1 :])
    if gap < max(SHARE * step, SECONDS):
        return None
    extras = {part: _extra(each_step, slowest, part) for part in parts}
    part = max(extras, key=extras.__getitem__)
    return Straggler(slowest, part, round(extras[part], 9), round(step, 9))


def _extra(each_step: Sequence[Mapping[str, float]], task: int, part: str) -> float:
    others = [own[part] for number, own in enumerate(each_step) if number != task]
    return each_step[task][part] - statistics.median(others)
