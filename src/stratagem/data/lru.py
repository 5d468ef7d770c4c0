"""A cache of the values used last, up to a total size."""

from __future__ import annotations

import threading
import weakref
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
        >>> [recent.get(key, key.upper) for key in "abac"]
        ['A', 'B', 'A', 'C']
        >>> len(recent)
        2
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[tuple[int, Hashable], tuple[Value, int]] = OrderedDict()
        self._size = 0
        self._owners: set[int] = set()
        # Re-entrant: garbage collection may forget an owner in a thread that is inside `get`.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recent, (self._limit,)

    def __len__(self) -> int:
        return len(self._values)

    def get(
        self,
        key: Hashable,
        make: Callable[[], Value],
        size_of: Callable[[Value], int] = lambda value: 1,
        owner: object = None,
    ) -> Value:
        """Return the value of `key`, made now unless it is still here.

        Args:
            key: Names the value.
            make: Makes it. Two threads that miss it at once both make it, so that nobody waits for another's file.
            size_of: Measures it in the unit of `limit`.
            owner: The value is dropped with this object, whose keys are its own.
        """
        place = id(owner), key
        with self._lock:
            if place in self._values:
                self._values.move_to_end(place)
                return self._values[place][0]
        value = make()
        with self._lock:
            if owner is not None and id(owner) not in self._owners:
                self._owners.add(id(owner))
                weakref.finalize(owner, self._forget, id(owner)).atexit = False
            if place not in self._values:
                self._values[place] = value, size_of(value)
                self._size += self._values[place][1]
            while self._size > self._limit and len(self._values) > 1:
                _, (_, size) = self._values.popitem(last=False)
                self._size -= size
        return value

    def _forget(self, owner: int) -> None:
        with self._lock:
            self._owners.discard(owner)
            for place in [place for place in self._values if place[0] == owner]:
                self._size -= self._values.pop(place)[1]
