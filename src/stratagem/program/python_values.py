"""Python values in a function that is being compiled: what needs them, and explanations of errors about them."""

from __future__ import annotations

import contextlib
import linecache
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final

import jax

from stratagem.core.errors import UsageError
from stratagem.program.autograph import rewrite_what_failed
from stratagem.program.captured_names import is_in_library

_ASKED: Final = {
    jax.errors.TracerBoolConversionError: (
        "asks whether a tensor is true",
        "Write keras.ops.cond(condition, lambda: ..., lambda: ...) or keras.ops.where(condition, x, y); for a loop "
        "keras.ops.while_loop(condition, body, loop_vars). In stratagem.tf: tf.cond, tf.where, tf.while_loop.",
    ),
    jax.errors.TracerIntegerConversionError: (
        "needs a tensor as a whole number of Python",
        "Give Python numbers to range(), shapes and lists; for a loop of unknown length write "
        "keras.ops.while_loop(condition, body, loop_vars) or keras.ops.fori_loop(0, n, body, init).",
    ),
    jax.errors.TracerArrayConversionError: (
        "gives a tensor to NumPy",
        "Use keras.ops or jax.numpy in place of NumPy, and return values that the program needs outside.",
    ),
}
"""For each error of JAX: what the code does, and what to write instead."""

_OTHERWISE: Final = (
    "needs the value of a tensor",
    "Return the tensor and look at it outside. For a decision inside the function, use keras.ops.cond or "
    "keras.ops.where.",
)


class NeedsPython(BaseException):
    """Leaves a tracing that would unroll a loop over data. Not an `Exception`: user code must not catch it."""


class NeedsValue(Exception):
    """A compiled function does what takes the value of a tensor.

    Args:
        what: What it does.
        instead: What to write instead.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what)
        self.what, self.instead = what, instead


@contextlib.contextmanager
def explaining_tensors_as_python_values() -> Iterator[None]:
    """Explain errors of JAX about values that are not known yet, with the line of the program that needs one.

    Raises:
        Rewritten: The function has been rewritten, so that it may need none.
        UsageError: In place of JAX's error.
    """
    try:
        yield
    except Exception as error:
        cause = _of_jax(error)
        if cause is None:
            raise
        raise _explained(cause, rewrite_what_failed(cause)) from error


def _of_jax(error: BaseException | None) -> Exception | None:
    """Return JAX's error about a value; Keras, in whose layers it is raised, fails to raise it again."""
    while error is not None and not isinstance(error, _KINDS):
        error = error.__context__ if isinstance(error, AttributeError | RuntimeError | TypeError) else None
    return error


_KINDS: Final[tuple[type[Exception], ...]] = (jax.errors.ConcretizationTypeError, *_ASKED, NeedsValue)


def _explained(error: Exception, why_not: str) -> UsageError:
    trace = error.__traceback__
    what, instead = next((said for kind, said in _ASKED.items() if isinstance(error, kind)), _OTHERWISE)
    if isinstance(error, NeedsValue):
        what, instead = error.what, error.instead
    return UsageError(
        f"A function that is being compiled {what}{line_of_the_program(reversed(list(traceback.walk_tb(trace))))}.",
        f"The function is traced once, before its tensors have values, and runs compiled at every step{why_not}.",
        instead,
    )


def line_of_the_program(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return where the innermost line of the program stands: of a file that is no library's and not ours.

    Args:
        frames: Frames and the lines that they are at, from the innermost out.
    """
    for frame, number in frames:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not is_in_library(file):
            return f", in {file}:{number}: `{linecache.getline(file, number).strip()}`"
    return ""
