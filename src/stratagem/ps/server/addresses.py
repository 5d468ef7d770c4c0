"""Addresses of workers that have moved: a board that each parameter server keeps.

All tasks know the addresses of the servers. A worker that hears nothing from the chief tells the servers where it
listens, and a chief that cannot reach the worker looks there. A worker's key lets it speak only for itself (`service`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from stratagem.core.clock import Clock, Deadline

KEPT_SECONDS: Final = 30.0
"""How long an announcement counts. A worker that nobody calls repeats it before that."""


@dataclass(frozen=True, slots=True)
class _Announcement:
    address: str
    life: int
    until: Deadline


class Board:
    """The last announcement of each worker. Every method may be called by several threads at once.

    Args:
        clock: Where time comes from.

    Example:
        >>> board = Board()
        >>> board.announce(0, "10.0.0.7:4711", life=2)
        >>> board.announce(0, "10.0.0.5:2222", life=1)  # a life that is over, and does not know it
        >>> board.addresses()
        {0: '10.0.0.7:4711'}
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._announcements: dict[int, _Announcement] = {}
        self._lock = threading.Lock()

    def announce(self, worker: int, address: str, life: int) -> None:
        """Note where a worker listens.

        Args:
            worker: Its index.
            address: `host:port`.
            life: When this life of the worker was started. While the announcement of a later life counts, that of an
                earlier one does not; it expires because the clocks of machines differ.
        """
        with self._lock:
            known = self._announcements.get(worker)
            if known is None or known.until.expired or known.life <= life:
                self._announcements[worker] = _Announcement(address, life, Deadline(KEPT_SECONDS, self._clock))

    def addresses(self) -> dict[int, str]:
        """Return where workers are, by their index."""
        with self._lock:
            found = self._announcements.items()
            return {worker: each.address for worker, each in found if not each.until.expired}
