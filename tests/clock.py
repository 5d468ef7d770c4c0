"""A clock that tests move by hand."""

from __future__ import annotations

from stratagem.core.clock import Clock


class HandClock(Clock):
    """Stands still until a test moves it, or waits on it.

    Args:
        time: Where it stands, in seconds.
    """

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds
