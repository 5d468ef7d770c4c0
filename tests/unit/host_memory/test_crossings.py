"""Crossings that a thread makes beside the program."""

from __future__ import annotations

import threading

import pytest

from stratagem.core.errors import PeerError
from stratagem.host_memory.crossings import Crossings


def test_they_are_made_one_after_the_other_whoever_is_waited_for_first() -> None:
    crossings, made, go = Crossings(), [], threading.Event()
    crossings.begin(1, lambda: (go.wait(10), made.append(1))[1])
    crossings.begin(2, lambda: made.append(2))
    assert made == []  # the program goes on meanwhile
    go.set()
    crossings.end(2)
    assert made == [1, 2]
    crossings.end(1)
    crossings.close()


def test_who_waits_gets_the_error_and_the_next_crossing_is_not_made() -> None:
    crossings, made = Crossings(), []

    def fail() -> None:
        raise PeerError("worker 1 has ended.", "Look at its output.")

    crossings.begin(1, fail)
    crossings.begin(1 << 40, lambda: made.append(2))
    for signature in (1, 1 << 40):
        with pytest.raises(PeerError, match="worker 1 has ended"):
            crossings.end(signature)
    assert made == []
    crossings.close()


def test_what_nobody_has_waited_for_is_over_before_its_memory_is_taken_again() -> None:
    crossings, made, go = Crossings(), [], threading.Event()
    crossings.clear(1)
    crossings.begin(1, lambda: (go.wait(10), made.append(1))[1])
    threading.Timer(0.05, go.set).start()
    crossings.clear(1)
    assert made == [1]
    crossings.close()


def test_the_thread_ends_behind_what_has_begun() -> None:
    crossings, made = Crossings(), []
    crossings.begin(1, lambda: made.append(1))
    crossings.close()
    crossings.end(1)
    [thread] = [each for each in threading.enumerate() if each is crossings._thread] or [None]
    if thread is not None:
        thread.join(10)
    assert made == [1]
    assert not any(each is crossings._thread for each in threading.enumerate())


def test_without_a_crossing_there_is_no_thread() -> None:
    crossings = Crossings()
    crossings.close()
    assert crossings._thread is None
