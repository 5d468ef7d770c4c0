"""Place of a worker in a world whose workers may change."""

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
