"""Methods of Keras 2 metrics, and Keras 2's order of arguments in `add_weight`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def reset_states(self: Any) -> None:
    """Begin anew: `reset_state` by its old name."""
    self.reset_state()


def calling_old_reset(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `Metric.reset_state`: a metric of the program's own may have its `reset_states` in the old name.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def reset_state(self: Any) -> None:
        own = type(self).reset_states
        if own is reset_states or self.__dict__.get("_resetting"):
            original(self)
            return
        object.__setattr__(self, "_resetting", True)  # it may call this method in turn
        try:
            own(self)
        finally:
            object.__delattr__(self, "_resetting")

    return reset_state


def naming_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `add_weight`, whose first argument was the name: `add_weight("total", initializer="zeros")`.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:]
            if not args and "shape" not in kwargs:
                kwargs["shape"] = ()
        return original(self, *args, **kwargs)

    return add_weight
