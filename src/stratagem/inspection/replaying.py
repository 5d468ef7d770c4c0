"""Run recorded steps again, bit for bit, to find the first one that leaves NaN or infinity behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from stratagem.feed.batch import GlobalBatch
from stratagem.inspection.recording import Recorded, Recording
from stratagem.inspection.states import State, Watched, copied, loss_of, number_of


@dataclass(frozen=True)
class BadStep:
    """The first step that leaves NaN or infinity behind.

    Args:
        number: Its number.
        last: The number of the last step that ran as one with it; `number` if the single step is known.
        state: The state to go back to, which is finite: the state before the step.
        batch: Its batch.
        before: The batch of the step before; None if that is not known.
        loss: The loss that it returned; None if it returned none.
        variables: Paths of the variables that hold NaN or infinity after it.
        is_assigned: Whether the variables held NaN before it, because the program had assigned it.
    """

    number: int
    last: int
    state: State
    batch: GlobalBatch
    before: GlobalBatch | None
    loss: float | None
    variables: Sequence[str]
    is_assigned: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a step.

    Args:
        state: The new values of the variables.
        loss: The loss; None if it has none.
        variables: Paths of the variables that hold NaN or infinity.
        is_bad: Whether any part of it is NaN or infinite, on any worker.
    """

    state: State
    loss: float | None
    variables: Sequence[str]
    is_bad: bool


def ran(watched: Watched, state: Sequence[jax.Array], batch: GlobalBatch) -> Outcome:
    """Run a step on copies of a state. All workers do it together.

    Args:
        watched: Its variables.
        state: The values that it is given.
        batch: The batch.
    """
    values = copied(state)
    found = loss_of(watched.step(values, batch))
    loss = None if found is None else number_of(found)
    variables = watched.faulty(values)
    is_finite = loss is None or bool(np.isfinite(loss))
    told = watched.strategy.from_all("a loss that is not finite", not is_finite)
    return Outcome(values, loss, variables, any(told) or bool(variables))


def first_bad_step(watched: Watched, recording: Recording) -> BadStep | None:
    """Run recorded steps again; return the first one that leaves NaN or infinity behind, or None if none does.

    All workers do it together.

    Args:
        watched: The variables of the steps.
        recording: The steps.
    """
    state, last = recording.start, recording.last_before
    for recorded in recording.steps:
        before = recorded.before(state)
        assigned = watched.faulty(before, only_nan=True) if recorded.changed or recorded is recording.steps[0] else []
        if assigned:
            return _bad(recorded, state, last, None, assigned, is_assigned=True)
        outcome = ran(watched, before, recorded.batch)
        if outcome.is_bad and recorded.batch.steps > 1:
            return _first_of_several(watched, recorded, before, last) or _bad(
                recorded, before, last, outcome.loss, outcome.variables
            )
        if outcome.is_bad:
            return _bad(recorded, before, last, outcome.loss, outcome.variables)
        state, last = outcome.state, recorded
    return None


def _first_of_several(
    watched: Watched, several: Recorded, state: Sequence[jax.Array], last: Recorded | None
) -> BadStep | None:
    """Run steps that ran as one singly; their last bits may differ then, so that none need be found."""
    for recorded in several.singly():
        outcome = ran(watched, state, recorded.batch)
        if outcome.is_bad:
            return _bad(recorded, state, last, outcome.loss, outcome.variables)
        state, last = outcome.state, recorded
    return None


def _bad(
    recorded: Recorded,
    state: Sequence[jax.Array],
    last: Recorded | None,
    loss: float | None,
    variables: Sequence[str],
    *,
    is_assigned: bool = False,
) -> BadStep:
    before = None if last is None else list(last.singly())[-1].batch
    return BadStep(
        recorded.first, recorded.last, list(state), recorded.batch, before, loss, variables, is_assigned=is_assigned
    )
