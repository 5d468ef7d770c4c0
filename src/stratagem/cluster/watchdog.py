"""The rule by which a group of tasks hangs, and because of whom. Pure functions: they ask nobody and end nothing.

Time without progress alone is not a hang. A task that waits for others (in a step, at a meeting) is held up by those
that have not come, and what these are doing says how long they may take. Nobody is blamed while somebody compiles, or
works between steps (saves, evaluates) for a time that is short beside the steps of this program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratagem.cluster.hello import Peer
from stratagem.core.errors import name_some
from stratagem.core.progress import Phase
from stratagem.core.spent import NOTHING_SPENT, Spent

PATIENCE_SECONDS: Final = 600.0
"""Least time without progress if the user names none: a large checkpoint takes minutes."""

LONGEST_STEPS: Final = 20.0
"""A program with long steps gets this many times its longest one."""

COMPILING_SECONDS: Final = 3600.0
"""Least time for a compilation, also where the user wants hangs to be found within seconds."""

ENDED_SECONDS: Final = 2.0
"""How long others may wait for a task that has ended its program: it will not come."""

SILENT_SECONDS: Final = 3.0
"""Tasks tell every second what they are doing; after this time the last of it is out of date."""

IN_STEP: Final = (Phase.STEP, Phase.COMPILING)
"""Phases in which a task may wait for others in a step."""

_WAITS: Final = (*IN_STEP, Phase.MEETING)


@dataclass(frozen=True)
class Standing:
    """The latest news of one task.

    Args:
        peer: The task.
        phase: What it does.
        steps: How many steps it has finished.
        seconds: How long it has been in the phase.
        longest_step: Its longest step so far, in seconds.
        usual_step: What a step takes it, in seconds.
        joints: Places that it has come to where nobody goes on alone.
        place: Where in the program, as far as others wait there too.
        is_joint: Whether it surely cannot go on from there before all others have come there.
        called: The method of a model that it is in.
        clock: When it said so, on its own clock; 0 where it has not yet.
        loss: Its latest loss; NaN if none is known.
        memory: Bytes of memory that it holds; 0 if that is not known.
        spent: What its seconds were spent on until then.
        silence: Seconds since it was last heard.
    """

    peer: Peer
    phase: Phase = Phase.OUTSIDE
    steps: int = 0
    seconds: float = 0.0
    longest_step: float = 0.0
    usual_step: float = 0.0
    joints: int = 0
    place: str = ""
    is_joint: bool = False
    called: str = ""
    clock: float = 0.0
    loss: float = math.nan
    memory: int = 0
    spent: Spent = NOTHING_SPENT
    silence: float = 0.0

    def __str__(self) -> str:
        if self.silence > SILENT_SECONDS:
            return f"{self.peer} has been silent for {self.silence:.0f} s (last heard after step {self.steps})"
        step = f"step {self.steps + 1}" if self.phase in IN_STEP else f"after step {self.steps}"
        place = "".join(f", {name}" for name in (self.place, self.called and f"in `{self.called}`") if name)
        return f"{self.peer} has been {self.phase.value} for {self.seconds:.0f} s ({step}{place})"


@dataclass(frozen=True)
class Hang:
    """A group that makes no progress.

    Args:
        stuck: Positions of the tasks that hold it up.
        found: What was found, in words.
        has_ended: Whether they have ended their programs.
        remedy: What to do; empty where their output says it.
    """

    stuck: tuple[int, ...]
    found: str
    has_ended: bool = False
    remedy: str = ""


def patience(hang_timeout: float | None, standings: Sequence[Standing]) -> float:
    """Return how many seconds without progress are too many.

    Args:
        hang_timeout: What the user asked for; None leaves it to the program's own steps.
        standings: All tasks.
    """
    if hang_timeout is not None:
        return max(hang_timeout, SILENT_SECONDS)
    return max([PATIENCE_SECONDS, *(LONGEST_STEPS * standing.longest_step for standing in standings)])


def find_hang(standings: Sequence[Standing], seconds: float) -> Hang | None:
    """Return who holds up the group, or None if it may still get on.

    Args:
        standings: All tasks.
        seconds: Time without progress that is too much.

    Example:
        >>> from stratagem.cluster.spec import Task
        >>> waits = Standing(Peer(Task("worker", 0), "a", 11), Phase.STEP, steps=7, seconds=40.0)
        >>> sleeps = Standing(Peer(Task("worker", 1), "b", 22), Phase.OUTSIDE, steps=7, seconds=40.0)
        >>> find_hang([waits, sleeps], seconds=60.0)
        >>> print(find_hang([waits, sleeps], seconds=30.0).found)
        No progress for 30 s because of worker 1:
            worker 0 (host a, pid 11) has been in a step for 40 s (step 8)
            worker 1 (host b, pid 22) has been between steps for 40 s (after step 7)
    """
    silent = [i for i, task in enumerate(standings) if task.silence > seconds]
    if silent:
        return _hang(standings, silent, seconds)
    reading = [i for i, task in enumerate(standings) if task.phase is Phase.INPUT and task.seconds > seconds]
    if reading:
        return _hang(standings, reading, seconds)
    for waiting in _longest_waiting(standings):
        behind = [i for i, task in enumerate(standings) if _is_behind(task, waiting)]
        ended = [i for i in behind if standings[i].phase is Phase.ENDED]
        if ended and min(waiting.seconds, *(standings[i].seconds for i in ended)) > ENDED_SECONDS:
            return _hang(standings, ended, ENDED_SECONDS, has_ended=True)
        if waiting.phase is Phase.MEETING or waiting.seconds <= seconds:
            continue
        holding = behind or [i for i, task in enumerate(standings) if task.steps <= waiting.steps]
        if all(standings[i].seconds > _allowed(standings[i], seconds) for i in holding):
            return _hang(standings, holding, seconds)
    return None


def _longest_waiting(standings: Sequence[Standing]) -> list[Standing]:
    """Return tasks that wait: of those at the same step, and of those at a meeting, the one that has waited longest.

    The others at its place are held up by the same tasks: with a thousand tasks, to look at each of them beside each
    would take process 0 half a second of every second.
    """
    found: dict[tuple[bool, int], Standing] = {}
    for task in standings:
        if task.phase in _WAITS:
            place = (True, 0) if task.phase is Phase.MEETING else (False, task.steps)
            earlier = found.setdefault(place, task)
            if task.seconds > earlier.seconds:
                found[place] = task
    return list(found.values())


def _is_behind(task: Standing, waiting: Standing) -> bool:
    """Whether a task has not come to where another one waits. A meeting has a deadline of its own."""
    if waiting.phase is Phase.MEETING:
        return task.phase is Phase.ENDED
    return task.steps < waiting.steps or (task.steps == waiting.steps and task.phase not in _WAITS)


def _allowed(task: Standing, seconds: float) -> float:
    return max(seconds, COMPILING_SECONDS) if task.phase is Phase.COMPILING else seconds


def _hang(standings: Sequence[Standing], stuck: Sequence[int], seconds: float, has_ended: bool = False) -> Hang:
    names = name_some(str(standings[i].peer.task) for i in stuck)
    cause = f" because of {names}" if len(stuck) < len(standings) else ""
    return Hang(tuple(stuck), f"No progress for {seconds:g} s{cause}:{listed(standings)}", has_ended)


def listed(standings: Sequence[Standing]) -> str:
    """Return what the tasks do, a line for each.

    Args:
        standings: The tasks.
    """
    lines = [f"\n    {standing}" for standing in standings[:_SHOWN]]
    more = f"\n    and {len(standings) - _SHOWN} more" if len(standings) > _SHOWN else ""
    return "".join(lines) + more


_SHOWN: Final = 16
"""Tasks described in one message."""
