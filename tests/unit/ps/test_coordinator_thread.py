"""The thread of the chief: it gives up when nobody comes."""

from __future__ import annotations

import contextlib

import pytest
from tests.clock import HandClock

from stratagem.core.errors import UnavailableError
from stratagem.ps.coordinator_thread import PATIENCE_SECONDS, Crew
from stratagem.ps.work import Job


class Receiver:
    def finish(self, value: object) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def abort(self) -> None: ...


def test_nobody_waits_for_ever_for_workers() -> None:
    clock = HandClock()
    with contextlib.closing(Crew(["127.0.0.1:9", "127.0.0.1:9"], [], clock=clock)) as crew:
        crew.schedule(Job(b"", frozenset(), Receiver()))
        assert not crew.done()
        clock.time = PATIENCE_SECONDS
        with crew._changed:
            crew._rouse()
        with pytest.raises(UnavailableError, match="No worker could be reached for 300 s; expected: worker 0, worker"):
            crew.join()
        crew.join()
        assert crew.counts()["aborted"] == 1
