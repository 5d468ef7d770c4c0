"""The learning phase of Keras 2: what a model does that is called without `training` (`K.set_learning_phase`).

`fit`, `evaluate` and `predict` say themselves whether they train, and a model inside another does what that does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any


class _Chosen:
    """What the program chose, for all of its threads; None before."""

    value: bool | None = None


class _Calls(threading.local):
    """Calls of models that are under way in a thread."""

    count = 0


_CHOSEN = _Chosen()
_CALLS = _Calls()


def choose(value: Any) -> None:
    """Let models train, or not, where they are called without `training`.

    Args:
        value: Whether they train; None for the behaviour of Keras 3.
    """
    _CHOSEN.value = None if value is None else bool(value)


@contextlib.contextmanager
def of_call(kwargs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the argument that is missing in a call of a model, which lasts as long as the context.

    Args:
        kwargs: The call's arguments by name.
    """
    is_told = _CHOSEN.value is None or _CALLS.count > 0 or "training" in kwargs
    _CALLS.count += 1
    try:
        yield {} if is_told else {"training": _CHOSEN.value}
    finally:
        _CALLS.count -= 1
