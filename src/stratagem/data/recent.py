"""What was used last, as much of it as fits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by their key, the last used ones up to a total size. Several threads may use it; it pickles empty.

    Args:
        limit: Total size to keep. The value used last is kept whatever its size.

    Example:
        >>> recent = Recent(limit=2)
        >>> [recent.get(key, lambda: key.upper()) for key in "abac"]
        ['A', 'B', 'A', 'C']
        >>> "b" in recent, len(recent)
        (False, 2)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._limit,)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable, make: Callable[[], Value], size_of: Callable[[Value], int] = lambda value: 1) -> Value:
        """Return the value of `key`, made now unless it is still here.

        Args:
            key: Names the value.
            make: Makes it. Two threads that miss it at once both make it, so that nobody waits for another's file.
            size_of: Measures it in the unit of `limit`.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value, size_of(value)
                self._size += self._values[key][1]
            while self._size > self._limit and len(self._values) > 1:
                _, (_, size) = self._values.popitem(last=False)
                self._size -= size
        return value
