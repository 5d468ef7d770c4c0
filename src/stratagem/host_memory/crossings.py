"""Crossings between hosts that go on while programs compute: a thread of their own makes one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue


class Crossings:
    """Crossings that have begun and not ended yet.

    All workers begin the same crossings in the same order, and the thread keeps to it. Where one has failed, the next
    ones fail too: nobody knows what of it is still on the connections. The thread is a daemon. For that of an executor
    (`concurrent.futures`) a process would wait at its end, however long the others do not come.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Future[None]] = {}
        self._queue: SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, signature: int, cross: Callable[[], None]) -> None:
        """Let the thread make a crossing, behind those that have begun before.

        Args:
            signature: Of the exchange that it is a part of. There is one crossing of an exchange at a time.
            cross: Makes it.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="stratagem-crossings", daemon=True)
            self._thread.start()
        self._begun[signature] = Future()
        self._queue.put((cross, self._begun[signature]))

    def end(self, signature: int) -> None:
        """Wait for a crossing.

        Args:
            signature: Of its exchange.

        Raises:
            PeerError: It failed, or one before it did.
        """
        self._begun.pop(signature).result()

    def clear(self, signature: int) -> None:
        """Wait for a crossing that has begun and that no program has waited for, as nobody needed its results.

        Args:
            signature: Of its exchange, whose memory is needed again.

        Raises:
            PeerError: It failed.
        """
        if signature in self._begun:
            self.end(signature)

    def close(self) -> None:
        """Let the thread end behind the crossings that have begun."""
        self._queue.put(None)

    def _work(self) -> None:
        failure: BaseException | None = None
        while (begun := self._queue.get()) is not None:
            cross, done = begun
            try:
                if failure is None:
                    cross()
            except BaseException as error:  # for the program that waits for it
                failure = error
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)
