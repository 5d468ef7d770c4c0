"""The thread of the chief: it gives up when nobody comes."""

from __future__ import annotations

import contextlib

import pytest
from tests.clock import HandClock

from stratagem.core.errors import UnavailableError
from stratagem.ps.coordinator_thread import PATIENCE_SECONDS, Workers
from stratagem.ps.dispatch import Dispatch
from stratagem.ps.work import Job


def look_again(workers: Workers) -> None:
    """Let the thread look once at what is to be done."""
    with workers._changed:
        workers._rouse()
        workers._changed.wait(10.0)


def test_nobody_waits_for_ever_for_workers() -> None:
    clock = HandClock()
    with contextlib.closing(Workers(["127.0.0.1:9", "127.0.0.1:9"], [], clock=clock)) as workers:
        workers.schedule(Job(b"", frozenset()))
        assert not workers.done()
        clock.time = PATIENCE_SECONDS
        look_again(workers)
        with pytest.raises(UnavailableError, match="No worker could be reached for 300 s; expected: worker 0, worker"):
            workers.join()
        workers.join()
        assert workers.counts()["aborted"] == 1


def test_a_new_term_waits_for_workers_anew() -> None:
    """Its first function was given up at once where the strategy was older than the patience."""
    clock = HandClock()
    with contextlib.closing(Workers(["127.0.0.1:9"], [], clock=clock)) as workers:
        clock.time = 10 * PATIENCE_SECONDS
        workers.begin("next term")
        workers.schedule(Job(b"", frozenset()))
        for _ in range(3):
            look_again(workers)
        assert not workers.done()
        clock.time = 11 * PATIENCE_SECONDS
        look_again(workers)
        with pytest.raises(UnavailableError, match="No worker could be reached for 300 s"):
            workers.join()


def test_too_few_workers_are_named() -> None:
    clock = HandClock()
    dispatch, addresses = Dispatch(least=2), ["127.0.0.1:9", "127.0.0.1:9"]
    with contextlib.closing(Workers(addresses, [], dispatch=dispatch, patience=20.0, clock=clock)) as workers:
        workers.schedule(Job(b"", frozenset()))
        clock.time = 20.0
        look_again(workers)
        with pytest.raises(UnavailableError, match="0 of at least 2 workers could be reached for 20 s; expected: work"):
            workers.join()
