"""A dictionary of what was used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LastUsed(OrderedDict[Hashable, Value], Generic[Value]):
    """A dictionary that keeps the values used last.

    Args:
        most: How many it keeps.

    Example:
        >>> known = LastUsed(2)
        >>> for key in "abac":
        ...     _ = known.keep(key, key.upper())
        >>> list(known)
        ['a', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: Hashable, value: Value) -> Value:
        """Note that a value is used, and return it."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return value
