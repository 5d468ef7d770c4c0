"""Words on tasks that hold up the others, long before a limit ends the group.

The rules are those of the watchdog with shorter times: nothing ends here, so a large checkpoint may be named too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from stratagem.cluster.watchdog import Standing, find_hang
from stratagem.core.errors import name_some
from stratagem.core.progress import Phase

SILENCE_SECONDS: Final = 5.0
"""Silence of a task that is worth a word. Each speaks every second."""

STALL_SECONDS: Final = 20.0
"""Least time without progress that is worth a word: saving, collecting garbage and busy machines take less."""

USUAL_STEPS: Final = 10.0
"""A program with long steps gets this many times its usual one."""


def find_stalled(standings: Sequence[Standing]) -> tuple[int, ...]:
    """Return the tasks that hold up the others long enough to say so.

    Args:
        standings: All tasks, process 0 first.

    Example:
        >>> from stratagem.cluster.hello import Peer
        >>> from stratagem.cluster.spec import Task
        >>> steps = Standing(Peer(Task("worker", 0), "a", 11), Phase.STEP, steps=7, seconds=6.0)
        >>> frozen = Standing(Peer(Task("worker", 1), "b", 22), Phase.OUTSIDE, steps=7, seconds=6.0, silence=6.0)
        >>> find_stalled([steps, frozen])
        (1,)
    """
    silent = tuple(i for i, task in enumerate(standings) if task.silence > SILENCE_SECONDS)
    if silent:
        return silent
    seconds = max([STALL_SECONDS, *(USUAL_STEPS * task.usual_step for task in standings)])
    hang = find_hang(standings, seconds)
    if hang is not None:
        return hang.stuck
    met = max((task.joints for task in standings if task.phase is Phase.MEETING and task.seconds > seconds), default=0)
    absent = [i for i, task in enumerate(standings) if task.joints < met]
    return tuple(i for i in absent if standings[i].phase is not Phase.COMPILING)


class StallNotes:
    """What to say of tasks that hold up the others, and when: at growing intervals, and when they go on."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        self._next = 0.0
        self._interval = 0.0

    def look(self, standings: Sequence[Standing], now: float, limit: float) -> list[str]:
        """Return the lines to say now.

        Args:
            standings: All tasks that this one hears, process 0 first.
            now: The time.
            limit: Seconds without progress that end the group.
        """
        stalled = find_stalled(standings)
        back = {i: began for i, began in self._began.items() if i not in stalled}
        lines = [f"{standings[i].peer} goes on, after {now - began:.0f} s." for i, began in back.items()]
        for i in back:
            del self._began[i]
        for i in stalled:
            if i not in self._began:
                is_silent = standings[i].silence > SILENCE_SECONDS
                self._began[i] = now - (standings[i].silence if is_silent else standings[i].seconds)
                self._next = now
        if not stalled:
            self._interval = 0.0
        elif now >= self._next:
            self._interval = 2 * self._interval or SILENCE_SECONDS
            self._next = now + self._interval
            lines.append(self._said(standings, stalled, limit))
        return lines

    def _said(self, standings: Sequence[Standing], stalled: Sequence[int], limit: float) -> str:
        what = name_some((str(standings[i]) for i in stalled), most=3, separator="; ")
        others = " The others wait." if len(stalled) < len(standings) else ""
        # A meeting has a limit of its own, at which it says who is missing.
        is_meeting = any(task.phase is Phase.MEETING for task in standings)
        end = "" if is_meeting or math.isinf(limit) else f" All end when that lasts {limit:g} s."
        return f"{what}.{others}{end}"
