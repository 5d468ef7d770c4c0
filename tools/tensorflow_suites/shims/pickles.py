"""Stand-in for dill, which some tests tell how a case is pickled; what they say in its absence is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F")


def register(_: type) -> Callable[[F], F]:
    """Return a decorator that leaves a function as it is: cases are pickled by cloudpickle."""
    return lambda function: function
