"""Callbacks that `fit` gets in the place of the program's own, while a program is run for one of its steps alone."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stratagem.fit import compat

Choose = Callable[[Sequence[Any]], Sequence[Any]]
"""Function of the callbacks that a program gives to `fit`, which returns those that it gets."""

_choose: contextvars.ContextVar[Choose | None] = contextvars.ContextVar("stratagem_callbacks_instead", default=None)


@contextlib.contextmanager
def giving(choose: Choose) -> Iterator[None]:
    """Let each `fit` in this context have other callbacks than the program gives it.

    Args:
        choose: Returns them.
    """
    token = _choose.set(choose)
    try:
        yield
    finally:
        _choose.reset(token)


def give_others(arguments: dict[str, Any]) -> bool:
    """Put the chosen callbacks in the place of those that `fit` was given.

    Args:
        arguments: The bound arguments of `fit`, with `callbacks`; changed in place.

    Returns:
        Whether somebody chooses; else nothing was changed.
    """
    choose = _choose.get()
    if choose is None:
        return False
    arguments["callbacks"] = list(choose(compat.flattened_callbacks(arguments["callbacks"])))
    return True
