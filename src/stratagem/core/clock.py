"""Time that tests can replace: a clock and deadlines measured on it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


class Clock:
    """The real, monotonic clock. Tests hand in one that they move by hand."""

    def now(self) -> float:
        """Return seconds since an arbitrary fixed moment."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let `seconds` pass."""
        threading.Event().wait(seconds)


@dataclass(frozen=True)
class Deadline:
    """A moment after which waiting must stop.

    Args:
        seconds: How long from now.
        clock: Where "now" comes from.

    Example:
        >>> Deadline(60.0).expired
        False
    """

    seconds: float
    clock: Clock = field(default_factory=Clock)
    start: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.clock.now())

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.start + self.seconds - self.clock.now())

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self.remaining <= 0.0
