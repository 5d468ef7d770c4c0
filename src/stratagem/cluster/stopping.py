"""`CommonStop`: all processes stop after the same step, at the request of any, without a message at each step.

A thread of each process waits for the request. When it comes, the process tells how many steps it has begun, and
begins no other until it has heard the same of all. The largest of these numbers is the step to stop behind: a
process that has begun it waits inside for the others, and they come, as each of them trains up to it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError
from stratagem.core.log import announce, logger

_PATIENCE: Final = 600.0
"""Seconds between two looks at a request that has not come; a blocking wait costs nothing meanwhile."""

_REQUESTED: Final = "requested"
_CLOSED: Final = "closed"

_instances = itertools.count()


class CommonStop:
    """A stop that all processes make behind the same step.

    All processes make one at the same point, and then call `may_begin` before each step, the same number of
    times.

    Args:
        peers: The processes; None for one on its own.
        delay: Called at the request: how many seconds the steps may still go on.
        name: What all processes call it; None counts those that this process has made.
    """

    def __init__(self, peers: Peers | None, delay: Callable[[], float] = lambda: 0.0, name: str | None = None) -> None:
        self._peers = peers
        self._delay = delay
        self._name = name or f"stop {next(_instances)}"
        self._counting = threading.Lock()
        self._begun = 0
        self._told = False
        self._stop: Future[int] = Future()
        """The step to stop behind, once it is agreed."""
        self._asked = threading.Event()
        self._reason = ""
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._pass_on, name="stratagem-stop-request", daemon=True)]
        if peers is not None:
            self._threads.append(threading.Thread(target=self._listen, name="stratagem-stop", daemon=True))
        for thread in self._threads:
            thread.start()

    def request(self, reason: str) -> None:
        """Ask all processes to stop. Does not wait or print: a signal handler may call it.

        Args:
            reason: A line to say.
        """
        self._reason = reason
        self._asked.set()

    def may_begin(self) -> bool:
        """Whether the next step is to be done. If not, every process has done the same steps.

        Raises:
            PeerError: A process did not tell how far it is.
        """
        with self._counting:
            if not self._told and not self._stop.done():
                self._begun += 1
                return True
        # The thread's own waits have deadlines, and end in a failure.
        if self._begun >= self._stop.result():
            return False
        self._begun += 1
        return True

    def close(self) -> None:
        """Take no further request. Those that wait for this process hear how far it came."""
        self._closed.set()
        self._asked.set()
        if self._peers is not None:
            try:
                self._tell(self._peers)
                self._peers.post(self._request_to(self._peers.own_index), _CLOSED)
            except Exception as error:  # the service is gone: then nobody waits any more
                logger.debug("The end of %s could not be reported: %s", self._name, error)
        for thread in self._threads:
            thread.join(1.0)

    def _pass_on(self) -> None:
        """Tell all processes of a request that came here."""
        self._asked.wait()
        if self._closed.is_set():
            return
        announce(self._reason)
        if self._closed.wait(max(0.0, self._delay())):
            return
        if self._peers is None:
            self._stop.set_result(self._count())
            return
        for index in range(len(self._peers.peers)):
            self._peers.post(self._request_to(index), _REQUESTED)

    def _listen(self) -> None:
        """Wait for a request, tell how far this process is, and learn how far all are."""
        assert self._peers is not None, "a process on its own has nobody to listen to"
        index, counts = 0, []
        try:
            while (word := self._heard(self._peers)) is None:
                pass
            if word == _CLOSED:
                return
            self._tell(self._peers)
            for index in range(len(self._peers.peers)):
                counts.append(int(self._peers.wait_for(self._steps_of(index))))
            self._stop.set_result(max(counts))
        except PeerError as error:
            self._stop.set_exception(error)
        except TimeoutError:
            found = f"{self._peers.peers[index]} did not report its step."
            remedy = "Look at the output of that task; every task must make the same calls."
            failure = PeerError(found, "The tasks could not stop after the same step.", remedy)
            self._stop.set_exception(failure)

    def _heard(self, peers: Peers) -> str | None:
        try:
            return peers.wait_for(self._request_to(peers.own_index), _PATIENCE)
        except TimeoutError:
            return None

    def _tell(self, peers: Peers) -> None:
        peers.post(self._steps_of(peers.own_index), self._count())

    def _count(self) -> int:
        """Return how many steps were begun; none is from now on, until the stop is known."""
        with self._counting:
            self._told = True
            return self._begun

    def _request_to(self, index: int) -> str:
        return f"{self._name}: request to {index}"

    def _steps_of(self, index: int) -> str:
        return f"{self._name}: steps of {index}"
