"""What to say where a function that is being compiled asks Python about a tensor: `if loss > 1:`, `range(n)`."""

from __future__ import annotations

import contextlib
import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import jax

from stratagem.core.errors import UsageError

_LIBRARIES: Final = (*{sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")},)
_OURS: Final = str(Path(__file__).parents[1])

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
        "Use keras.ops or jax.numpy in place of NumPy, and return what the program should see outside.",
    ),
}
"""What the code does, and what to write instead."""

_OTHERWISE: Final = (
    "needs the value of a tensor",
    "Return the tensor and look at it outside; what the function decides by it, it decides with keras.ops.cond or "
    "keras.ops.where.",
)


@contextlib.contextmanager
def explaining_tensors_as_python_values() -> Iterator[None]:
    """Explain errors of JAX about values that are not known yet, with the line of the program that needs one.

    Raises:
        UsageError: In place of JAX's error.
    """
    try:
        yield
    except Exception as error:
        cause = _of_jax(error)
        if cause is None:
            raise
        raise _explained(cause) from error


def _of_jax(error: BaseException | None) -> Exception | None:
    """Return JAX's error about a value; Keras, in whose layers it is raised, fails to raise it again."""
    while error is not None and not isinstance(error, _KINDS):
        error = error.__context__ if isinstance(error, AttributeError | RuntimeError | TypeError) else None
    return error


_KINDS: Final = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def _explained(error: Exception) -> UsageError:
    what, instead = next((said for kind, said in _ASKED.items() if isinstance(error, kind)), _OTHERWISE)
    return UsageError(
        f"A function that is being compiled {what}{_line_of_the_program(error.__traceback__)}.",
        "The function is traced once, before its tensors have values, and runs compiled at every step.",
        instead,
    )


def _line_of_the_program(trace: TracebackType | None) -> str:
    """Return where the innermost line of the program stands: of a file that is no library's and not ours."""
    for frame, number in reversed(list(traceback.walk_tb(trace))):
        file = frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, _OURS, "<")):
            return f", in {file}:{number}: `{linecache.getline(file, number).strip()}`"
    return ""
