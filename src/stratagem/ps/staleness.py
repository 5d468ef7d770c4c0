"""Bounded staleness: a rule of `Dispatch` for when a closure may begin. Pure, as it is."""

from __future__ import annotations

from collections.abc import Sequence


class Overlaps:
    """Bounds staleness: the number of updates between the moment a worker reads and the moment its update is applied.

    Only closures that are in flight together with another can change what it has read. So their number, over its
    whole flight, bounds its staleness: a closure begins only where that number stays within the bound, for it and for
    all that are in flight.

    Args:
        most: The bound; None for none.

    Example:
        >>> overlaps = Overlaps(1)
        >>> overlaps.begin(0), overlaps.begin(1), overlaps.admits
        (None, None, False)
        >>> overlaps.end(0), overlaps.admits  # the first overlapped closure 1, another would be its second
        (None, False)
        >>> overlaps.end(1), overlaps.admits
        (None, True)
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._met: dict[int, int] = {}
        """How many others each closure in flight has been in flight with, where there is a bound."""

    @property
    def admits(self) -> bool:
        """Whether another closure may begin."""
        return self.most is None or (len(self._met) <= self.most and all(n < self.most for n in self._met.values()))

    def begin(self, closure: int) -> None:
        """Take note that a closure begins."""
        if self.most is not None:
            self._met = {other: number + 1 for other, number in self._met.items()}
            self._met[closure] = len(self._met)

    def end(self, closure: int) -> None:
        """Take note that a closure has ended, or was lost."""
        self._met.pop(closure, None)

    def holds(self, running: Sequence[int]) -> bool:
        """Return whether the bound is kept, and no closure but those in flight is known."""
        return self.most is None or (set(self._met) == set(running) and all(n <= self.most for n in self._met.values()))
