"""Models whose replicas hold parts of a value, and how the parts are put together where all workers read it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

_puts_together: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def holds_parts(model: Any, put_together: Callable[[Any], None]) -> None:
    """Note that a model may hold values in parts.

    Args:
        model: The model.
        put_together: Given the model, makes the values of its variables whole. It is collective.
    """
    _puts_together[model] = put_together


def make_whole(model: Any) -> None:
    """Make the values of a model's variables whole. All workers must call it at the same point."""
    put_together = _puts_together.get(model)
    if put_together is not None:
        put_together(model)
