"""Number of the workers of a world, where it may change: the bounds, and the place of a worker."""

from __future__ import annotations

from typing import NamedTuple


class Layout(NamedTuple):
    """Place of a worker among the others, for which its programs are made.

    Args:
        size: How many workers there are.
        rank: Which of them this one is.
    """

    size: int
    rank: int


class Bounds(NamedTuple):
    """Bounds of the number of workers of a run.

    Args:
        least: With fewer it waits.
        most: So many there are at its start; more are not taken in.
    """

    least: int
    most: int

    @property
    def may_change(self) -> bool:
        """Whether the number of workers may change while they train."""
        return self.least < self.most
