"""Marks of `tf.autograph.experimental`: they are accepted, and functions are not rewritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """Return the function: none is rewritten.

    Example:
        >>> @do_not_convert
        ... def double(x):
        ...     return 2 * x
        >>> double(3)
        6
    """
    return (lambda function: function) if func is None else func


def set_loop_options(**options: Any) -> None:
    """Accept options of a loop."""


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Accept the level: functions are not rewritten."""
