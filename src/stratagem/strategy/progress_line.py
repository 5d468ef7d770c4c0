"""State of a cluster with parameter servers, as the progress line of `fit` shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stratagem.core.clock import Clock

_SECONDS: Final = 1.0
"""How often to count anew: a line is written twenty times a second, and each count of updates asks all servers."""


class ProgressLine:
    """Workers alive, steps per second and staleness, in words.

    Args:
        workers_up: Returns how many workers are there now.
        workers: How many the cluster has.
        counts: Returns what `ClusterCoordinator.metrics` does.
        clock: Where time comes from.

    Example:
        >>> ProgressLine(lambda: 2, 2, lambda: {"finished": 0, "updates": 0, "staleness": 0}).line()
        '2/2 workers'
    """

    def __init__(
        self,
        workers_up: Callable[[], int],
        workers: int,
        counts: Callable[[], Mapping[str, float]],
        clock: Clock | None = None,
    ) -> None:
        self._workers_up = workers_up
        self._workers = workers
        self._counts = counts
        self._clock = clock or Clock()
        self._last: Mapping[str, float] | None = None
        self._at = 0.0
        self._rates: list[str] = []

    def line(self) -> str:
        """Return the line: workers now, the rest of the last second or longer that was counted."""
        now = self._clock.now()
        if self._last is None or now - self._at >= _SECONDS:
            counts = self._counts()
            self._rates = self._rates_until(counts, now)
            self._last, self._at = counts, now
        return ", ".join([f"{self._workers_up()}/{self._workers} workers", *self._rates])

    def _rates_until(self, counts: Mapping[str, float], now: float) -> list[str]:
        words: list[str] = []
        if self._last is not None:
            steps = counts["finished"] - self._last["finished"]
            updates = counts["updates"] - self._last["updates"]
            words += [f"{steps / (now - self._at):.1f} steps/s"] if steps else []
            stale = counts["staleness"] - self._last["staleness"]
            words += [f"staleness {stale / updates:.1f}"] if updates > 0 else []
        return words
