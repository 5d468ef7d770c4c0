"""Values that workers hold, so that functions need not bring them each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Shared:
    """A value that workers hold as long as the program, a closure or another such value refers to this object.

    Args:
        number: What workers know it by.
        data: Pickled.
        to_call: Whether the value is what the pickled function returns.
        needs: The shared values that it refers to.
    """

    number: int
    data: bytes
    to_call: bool
    needs: frozenset[Shared] = frozenset()


def missing(needs: Iterable[Shared], known: set[int]) -> set[Shared]:
    """Return the values that a worker still needs.

    Args:
        needs: What a function refers to.
        known: Numbers of the values that the worker has.

    Example:
        >>> model = Shared(1, b"model", to_call=False)
        >>> dataset = Shared(2, b"dataset", to_call=True, needs=frozenset([model]))
        >>> sorted(shared.number for shared in missing([dataset], known=set()))
        [1, 2]
        >>> missing([dataset], known={1, 2})
        set()
    """
    found: set[Shared] = set()
    for shared in needs:
        if shared.number not in known:
            found |= {shared} | missing(shared.needs, known)
    return found
