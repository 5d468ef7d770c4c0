"""The thread that reads ahead: bounded, ended by close and by forgetting, and open about errors."""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Iterator

import pytest

from stratagem.core.errors import UsageError
from stratagem.data import Dataset
from stratagem.data.prefetch import Prefetcher

WAIT = 20.0
"""Seconds after which a test that waits for an event has failed."""


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stratagem-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    for thread in prefetch_threads():
        thread.join(WAIT)
    assert prefetch_threads() == []


class Counting:
    """Yields 0, 1, 2, ... and tells when it has begun to make a number."""

    def __init__(self, end: int) -> None:
        self.begun = [threading.Event() for _ in range(end)]

    def __iter__(self) -> Iterator[int]:
        for number, event in enumerate(self.begun):
            event.set()
            yield number


def test_items_come_in_order_and_end() -> None:
    items = Prefetcher(iter(range(100)), depth=3)
    assert list(items) == list(range(100))
    with pytest.raises(StopIteration):
        next(items)


def test_reads_ahead_no_further_than_its_depth() -> None:
    source = Counting(10)
    items = Prefetcher(iter(source), depth=2)
    # Two items wait in the queue, and the thread holds a third.
    assert source.begun[2].wait(WAIT)
    assert not source.begun[3].is_set()
    assert next(items) == 0
    assert source.begun[3].wait(WAIT)
    assert not source.begun[4].is_set()
    items.close()


def test_error_comes_in_its_place_with_its_traceback() -> None:
    def break_at_three(x: int) -> int:
        if x == 3:
            raise RuntimeError("the third")
        return x

    batches = Dataset.range(9).map(break_at_three).batch(1).batches(prefetch=4)
    assert [next(batches).data.tolist() for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(RuntimeError, match="the third") as caught:
        next(batches)
    assert "break_at_three" in {frame.name for frame in traceback.extract_tb(caught.tb)}
    assert list(batches) == [], "an error ends the iterator"
    assert batches.get_state()["batches"] == 3


def test_close_ends_a_thread_that_waits_for_room() -> None:
    source = Counting(5)
    items = Prefetcher(iter(source), depth=1)
    assert source.begun[1].wait(WAIT)
    items.close()
    assert prefetch_threads() == []
    assert not source.begun[2].is_set()
    with pytest.raises(StopIteration):
        next(items)


def test_forgetting_the_iterator_ends_the_thread() -> None:
    batches = Dataset.range(10).repeat().batch(2).batches(prefetch=2)
    assert next(batches).data.tolist() == [0, 1]
    (thread,) = prefetch_threads()
    assert thread.daemon
    del batches
    gc.collect()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_close_runs_the_clean_up_of_a_generator() -> None:
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    batches = Dataset.from_generator(numbers).batch(2).batches(prefetch=2)
    next(batches)
    batches.close()
    assert closed.wait(WAIT)


def test_close_does_not_wait_for_ever_for_a_stuck_function(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratagem.data.prefetch._CLOSE_SECONDS", 0.01)
    release, entered = threading.Event(), threading.Event()

    def stuck(x: int) -> int:
        entered.set()
        release.wait(WAIT)
        return x

    items = Prefetcher(map(stuck, range(2)), depth=1)
    reader = threading.Thread(target=lambda: next(items, None))
    reader.start()
    assert entered.wait(WAIT)
    items.close()
    reader.join(WAIT)
    assert not reader.is_alive(), "close lets the waiting side go"
    assert "still inside the input function" in caplog.text
    release.set()


def test_a_thread_that_is_gone_is_an_error_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratagem.data.prefetch._CHECK_SECONDS", 0.01)
    # What os.fork() leaves behind: an iterator whose thread is not running and never said that it ended.
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    items = Prefetcher(iter([1]), depth=1)
    with pytest.raises(UsageError, match=r"(?s)is gone.*os\.fork.*What to do: Make the iterator in the process"):
        next(items)
