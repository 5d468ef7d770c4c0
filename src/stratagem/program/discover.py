"""Discovery of the variables that a function touches: it is traced once, and only that is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import keras

from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.variable_policies import Policy, policy_of
from stratagem.program.autograph import tracing_anew
from stratagem.program.tracing import Replayable, current_tracing

_STATEFUL: Final = "stateful"


def discover(run: Callable[..., Replayable], args: Sequence[Any], mesh: ReplicaMesh | None = None) -> Replayable:
    """Trace a function once. Variables, layers and optimizers that it makes are there afterwards.

    Args:
        run: Traces the function with arguments like `args`; returns the tracing, which is one that discovers.
        args: Arrays, or their shapes, in structures.
        mesh: The replicas, where it is the function of one.

    Returns:
        The tracing: `scope.touched` has the variables that were read or assigned.
    """
    axes = None if mesh is None else mesh.axes
    nothing = contextlib.nullcontext()
    made_at_centre, within_replica = (nothing, nothing) if mesh is None else (mesh.making_variables(), mesh.tracing())

    def trace() -> Replayable:
        tracings: list[Replayable] = []
        jax.make_jaxpr(lambda *given: tracings.append(run(*given)), axis_env=axes)(*args)
        return tracings[0]

    # Variables that are made inside a scope get their values when the outermost scope ends: outside the trace.
    with made_at_centre, within_replica, keras.StatelessScope():
        tracing = tracing_anew(trace)
        kept = [become_variable() for become_variable in tracing.notes.get(_STATEFUL, ())]
        if any(kept):
            tracing = tracing_anew(trace)  # the function finds them, and does not make them again
        return tracing


def note_stateful(become_variable: Callable[[], bool]) -> None:
    """Note that the function that is being traced makes something with a state of its own, if it is being discovered.

    Args:
        become_variable: Called behind the tracing. Where the program keeps what was made, it gets a variable, which
            keeps its state between calls, and True is returned.
    """
    tracing = current_tracing()
    if tracing is not None and tracing.discovering:
        tracing.notes.setdefault(_STATEFUL, []).append(become_variable)


def policies_of(tracing: Replayable, variables: Sequence[Any]) -> list[Policy]:
    """Return what replicas do with each of some variables that a function touches."""
    alike = {id(variable) for variable in tracing.notes.get("updated alike", ())}
    return [Policy.SAME if id(variable) in alike else policy_of(variable) for variable in variables]
