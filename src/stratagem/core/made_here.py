"""Variables that a function makes which a worker of parameter servers runs.

No other worker has such a variable, and no checkpoint. One that is gone when the function ends is nobody's concern; of
one that the program keeps, the worker tells.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

_made: Final[ContextVar[Made | None]] = ContextVar("variables made by a function of a worker", default=None)


class Made:
    """Variables that one run of a function has made."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []

    def add(self, variable: Any) -> None:
        """Note a variable."""
        self._references.append(weakref.ref(variable))

    def kept(self) -> list[Any]:
        """Return the variables that something still refers to."""
        if any(reference() is not None for reference in self._references):
            gc.collect()  # a layer and its variables refer to each other
        return [variable for reference in self._references if (variable := reference()) is not None]


@contextlib.contextmanager
def noting() -> Iterator[Made]:
    """Note the variables that are made in this context."""
    made = Made()
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


@contextlib.contextmanager
def not_noting() -> Iterator[None]:
    """Note nothing in this context: what is made in it is each worker's own, as a dataset is."""
    token = _made.set(None)
    try:
        yield
    finally:
        _made.reset(token)


def note(variable: Any) -> None:
    """Note that the program makes a variable, if a worker runs it."""
    made = _made.get()
    if made is not None:
        made.add(variable)
