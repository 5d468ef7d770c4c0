"""Things that cannot be part of a compiled function."""

from __future__ import annotations

from stratagem.program.tracing import current_tracing


class NeedsPython(BaseException):
    """Leaves a tracing that would unroll a loop over data. Not an `Exception`: user code must not catch it."""


class AdvancedByPython:
    """A base of what Python moves on at each step: a function that is given one runs as Python from the start.

    Traced first, it could meet other uses of Python that no trace can do before it asks for an element:
    `for _ in tf.range(steps): step(next(iterator))`.
    """


def leave_tracing() -> None:
    """Leave the function that is being traced, if any: what comes needs Python at each step.

    `stratagem.function` then runs the function as Python, and what it calls is compiled.
    """
    if current_tracing() is not None:
        raise NeedsPython
