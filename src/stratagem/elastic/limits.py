"""The limits of all waits of elastic training, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BEAT_SECONDS: Final = 0.2
"""How often a member says that it lives."""


@dataclass(frozen=True)
class Limits:
    """How long the coordinator waits, in seconds. Each of its waits has one of these limits.

    Args:
        start: For the wanted number of workers, before the first world.
        suspect: For a beat, until the coordinator asks the system whether the process is stopped.
        silent: For a beat, until the member is taken for dead. A busy machine may keep a thread waiting for a second or
            two; whoever is stopped by a signal is found by `suspect`.
        broken: From the report of a member that has lost another in its exchange to the cut, if nobody has died.
        stop: For the answer to a stop that cuts what is in flight.
        planned: For the common last step of a planned change. After it, what is in flight is cut.
        form: For a member to set up the exchange of a new world, and to have the state.
        compiling: The same three, for a member that says that it compiles.
        first_step: For the first step of a world that runs, for which its members get their cores to themselves. An
            evaluation or a save may come before it.
        settle: From the last join to the change that takes it in, so that workers of one machine come in together.
        reserve: Before the moment at which a member that leaves is gone, to reach the last step with it. Until then it
            stays, if too few would be left without it.
        finish: For the others to end their programs, after one has ended its own and another has died.
        end: For the members to go when the run has ended.
        save: For the last step of a run with too few workers, and for its saves.
    """

    start: float = 300.0
    suspect: float = 0.4
    silent: float = 5.0
    broken: float = 1.0
    stop: float = 10.0
    planned: float = 120.0
    form: float = 120.0
    compiling: float = 3600.0
    first_step: float = 10.0
    settle: float = 1.0
    reserve: float = 3.0
    finish: float = 60.0
    end: float = 10.0
    save: float = 300.0
