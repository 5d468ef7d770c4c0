"""Marks of `tf.autograph.experimental`: which functions are not rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stratagem.program.autograph import leave_as_it_is


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """Return the function, which is then never rewritten: its conditions and loops stay Python's.

    Example:
        >>> @do_not_convert
        ... def double(x):
        ...     return 2 * x
        >>> double(3)
        6
    """
    if func is None:
        return do_not_convert
    code = getattr(func, "__code__", None)
    if code is not None:
        leave_as_it_is(code)
    return func


def set_loop_options(**options: Any) -> None:
    """Accept options of a loop."""


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Accept the level, without effect: no message appears when a function is rewritten."""
