"""Locate the layer, the operation and the rows that a step's first NaN or infinity came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import jax

from stratagem.core.errors import InputError
from stratagem.feed.batch import GlobalBatch
from stratagem.inspection.finding import Finding, layer_in
from stratagem.inspection.replaying import BadStep, ran
from stratagem.inspection.rows import RowsOfBatch, inputs_not_finite, rows_at_fault
from stratagem.inspection.states import Watched, copied
from stratagem.program.assertions import are_numbers_checked, check_numbers
from stratagem.program.checked_numbers import Computed, NonFiniteError


def named(bad: BadStep) -> Finding:
    """Return what is known about a step without running it again.

    Args:
        bad: The step.
    """
    loss = None if bad.loss is None else str(bad.loss)
    return Finding(bad.number, bad.last, loss, list(bad.variables), bad.is_assigned, batch_rows=bad.batch.split.rows)


def located(watched: Watched, bad: BadStep) -> Finding:
    """Return where the first NaN or infinity of a step came from. All workers do it together.

    Args:
        watched: The variables of the step.
        bad: The step.
    """
    known = named(bad).as_json()
    if bad.is_assigned:
        return Finding(**known)
    mesh, strategy = watched.step.mesh, watched.strategy

    def is_faulty(batch: GlobalBatch) -> bool:
        return ran(watched, bad.state, batch).is_bad

    inputs = inputs_not_finite(strategy, RowsOfBatch(mesh, bad.batch)) if bad.batch.steps == 1 else {}
    computed = first_computed(watched, bad.state, bad.batch)
    rows = rows_at_fault(mesh, bad.batch, bad.before, is_faulty)
    if inputs and (rows is None or not set(rows.rows) & {row for each in inputs.values() for row in each}):
        inputs = {}  # the program can do with these; something else is at fault
    found = {"inputs": inputs, "replicas": mesh.size}
    if rows is not None:
        found |= {"rows": rows.rows, "is_all_rows": rows.is_all}
    if computed is not None and computed.operation:
        found |= {name: getattr(computed, name) for name in ("operation", "result", "scope", "line", "replica")}
        found["layer"] = layer_in(watched.step.model, computed.scope)
        found["worker"] = computed.replica * strategy.worker_count // mesh.size
    return Finding(**{**known, **found})


def first_computed(watched: Watched, state: Sequence[jax.Array], batch: GlobalBatch) -> Computed | None:
    """Return the first operation of a step that computes NaN or infinity; None if none does, or it is not compiled.

    All workers call it together; it is the operation of the first replica that has one.

    Args:
        watched: The variables of the step.
        state: The values that the step is given.
        batch: Its batch.
    """
    before, own = are_numbers_checked(), None
    check_numbers(True)
    try:
        watched.step(copied(state), batch)
    except NonFiniteError as error:
        own = asdict(error.computed)
    except InputError as error:
        if not error.is_of_peer:
            raise
    finally:
        check_numbers(before)
    told = [Computed(**each) for each in watched.strategy.from_all("first number that is not finite", own) if each]
    return min(told, key=lambda each: each.replica, default=None)
