"""Tensors that a tracing leaves where a function looks: they are taken away again.

A function that keeps a tensor (`self.seen = mean`, `losses.append(loss)`, `if self.table is None: self.table = ...`)
keeps one that means something in that tracing only. We trace a function to learn which variables it touches, then to
compile it. The second tracing has to find what the first one found; what it leaves stays, as in TensorFlow, which
traces once.
"""

from __future__ import annotations

import contextlib
from collections import deque
from types import CellType, MappingProxyType
from typing import Any, Final

from stratagem.program.compat import is_left_by_a_trace
from stratagem.program.guards import MISSING, MOST_ITEMS, CapturedValue, Guards, content_of, names_of

_CHANGING: Final = (list, deque, dict, set)
_STRUCTURES: Final = (*_CHANGING, tuple, frozenset)


class Standing:
    """Contents of the attributes, names, cells and containers that a function reads, as they are now.

    Args:
        guards: What the function refers to.
    """

    def __init__(self, guards: Guards) -> None:
        self._contents = [(place, _content(place)) for place in guards.looked_at()]
        containers = guards.containers()
        self._containers = [(each, each.copy()) for each in containers if isinstance(each, _CHANGING)]

    def put_back(self) -> None:
        """Put it back where a tracing that has ended has left a tensor, or a structure with one."""
        for container, items in self._containers:
            if _has_left(container) and not _has_left(items):
                container.clear()
                (container.extend if isinstance(container, list | deque) else container.update)(items)
        for place, content in self._contents:
            if _has_left(_content(place)) and not _has_left(content):
                _put(place, content)


def _has_left(value: Any) -> bool:
    """Whether a value is a tensor of a tracing that has ended, or a structure that has one.

    A structure may hold itself. One that is too long to be looked into holds what it holds.
    """
    pending, seen = [value], set[int]()
    while pending:
        each = pending.pop()
        if not isinstance(each, _STRUCTURES):
            if is_left_by_a_trace(each):
                return True
        elif id(each) not in seen and len(each) <= MOST_ITEMS:
            seen.add(id(each))
            pending.extend(each.values() if isinstance(each, dict) else each)
    return False


def _content(place: CapturedValue) -> Any:
    if isinstance(place.holder, CellType):
        return content_of(place.holder)
    holder = names_of(place.holder)
    return holder.get(place.name, MISSING)


def _put(place: CapturedValue, content: Any) -> None:
    if content is not MISSING:
        place.put(content)
    elif isinstance(place.holder, CellType):
        del place.holder.cell_contents
    elif isinstance(names := names_of(place.holder), MappingProxyType):
        with contextlib.suppress(AttributeError):
            delattr(place.holder(), place.name)
    else:
        names.pop(place.name, None)
