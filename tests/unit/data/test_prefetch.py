"""The thread that reads ahead: bounded, ended by close and by forgetting, and open about errors."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratagem.core.counters import CountersFile
from stratagem.core.errors import InputError, UsageError
from stratagem.core.progress import Progress
from stratagem.data import AUTOTUNE, Dataset, prefetch
from stratagem.data.prefetch import Prefetcher, await_turn

WAIT = 20.0
"""Seconds after which a test that waits for an event has failed."""


_of_others: set[threading.Thread] = set()


def prefetch_threads() -> list[threading.Thread]:
    """Return the threads that read ahead and that this test has started."""
    return [
        thread for thread in threading.enumerate() if thread.name == "stratagem-prefetch" and thread not in _of_others
    ]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Check that no thread is left; iterators of other tests that only cycles keep may still have theirs."""
    _of_others.clear()
    _of_others.update(prefetch_threads())
    yield
    for thread in prefetch_threads():
        thread.join(WAIT)
    assert prefetch_threads() == []


def reading(items: Iterator[Any], depth: int) -> Prefetcher[Any]:
    return Prefetcher(items, depth, [lambda item: item])


class Counting:
    """Yields 0, 1, 2, ... and tells when it has begun to make a number."""

    def __init__(self, end: int) -> None:
        self.begun = [threading.Event() for _ in range(end)]

    def __iter__(self) -> Iterator[int]:
        for number, event in enumerate(self.begun):
            event.set()
            yield number


def test_items_come_in_order_and_end() -> None:
    items = reading(iter(range(100)), depth=3)
    assert list(items) == list(range(100))
    with pytest.raises(StopIteration):
        next(items)


def test_reads_ahead_no_further_than_its_depth() -> None:
    source = Counting(10)
    items = reading(iter(source), depth=2)
    # Two items wait in the queue, and the thread holds a third.
    assert source.begun[2].wait(WAIT)
    assert not source.begun[3].is_set()
    assert next(items) == 0
    assert source.begun[3].wait(WAIT)
    assert not source.begun[4].is_set()
    items.close()


def test_others_see_how_many_items_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counters"
    monkeypatch.setattr(prefetch, "progress", Progress(file=CountersFile(path)))
    source = Counting(4)
    items = reading(iter(source), depth=2)
    assert source.begun[2].wait(WAIT)  # two wait in the queue, and the thread holds the third
    assert next(items) == 0
    assert CountersFile.read(path).ready == 2
    assert list(items) == [1, 2, 3]
    assert CountersFile.read(path).ready == 0  # when it asked for a fifth


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


@pytest.mark.parametrize("fails", [False, True])
def test_what_ends_a_pass_keeps_nothing_of_who_asked(fails: bool) -> None:
    """An error's traceback holds the frames that it passed, and these the last batch."""

    class Batch:
        pass

    def items() -> Iterator[int]:
        yield 1
        if fails:
            raise KeyError("gone")

    def consume() -> weakref.ref[Batch]:
        batch, prefetcher = Batch(), reading(items(), 1)
        with contextlib.suppress(StopIteration, KeyError):
            while True:
                next(prefetcher)
        return weakref.ref(batch)

    gc.disable()
    try:
        assert consume()() is None
    finally:
        gc.enable()


def test_close_ends_a_thread_that_waits_for_room() -> None:
    source = Counting(5)
    items = reading(iter(source), depth=1)
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

    items = reading(map(stuck, range(2)), depth=1)
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
    items = reading(iter([1]), depth=1)
    said = r"(?s)does not exist in this process.*os\.fork.*What to do: Make the iterator in the process"
    with pytest.raises(UsageError, match=said):
        next(items)


def numbers_of(batches: Iterator[Any]) -> list[list[int]]:
    return [batch.data.tolist() for batch in batches]


def test_parallel_calls_read_batches_at_the_same_time_and_in_order() -> None:
    both = threading.Barrier(2)
    threads: set[int] = set()

    def meet(x: int) -> int:
        both.wait(WAIT)  # breaks unless two batches are read at once
        threads.add(threading.get_ident())
        return x

    dataset = Dataset.range(8).shuffle(8, seed=3).batch(1).map(meet, num_parallel_calls=2)
    batches = dataset.batches(prefetch=2)
    expected = numbers_of(Dataset.range(8).shuffle(8, seed=3).batch(1).batches())
    assert numbers_of(batches) == expected
    assert len(threads) == 2
    assert batches.get_state()["batches"] == 8


def test_parallel_calls_finish_out_of_order_and_come_in_order() -> None:
    second = threading.Event()

    def late(x: int) -> int:
        if x == 0:
            assert second.wait(WAIT)
        if x == 1:
            second.set()
        return x

    assert numbers_of(Dataset.range(5).map(late, num_parallel_calls=2).batch(1).batches(prefetch=1)) == [
        [0],
        [1],
        [2],
        [3],
        [4],
    ]


def test_parallel_calls_are_bounded() -> None:
    source = Counting(20)
    items = Prefetcher(iter(source), 2, [lambda item: item] * 3)
    # Five places: two ready and three being read. The first thread holds a plan beyond them.
    assert source.begun[5].wait(WAIT)
    assert not source.begun[6].is_set()
    assert next(items) == 0
    assert source.begun[6].wait(WAIT)
    assert not source.begun[7].is_set()
    items.close()
    assert prefetch_threads() == []


def test_one_call_at_a_time_and_in_order_beside_parallel_calls() -> None:
    second = threading.Event()
    seen: list[int] = []

    def late(x: int) -> int:
        if x == 0:
            assert second.wait(WAIT)
        return x

    def remember(x: int) -> int:
        seen.append(int(x))
        return x

    def early(x: int) -> int:
        if x == 1:
            second.set()
        return x

    dataset = Dataset.range(40).map(late, AUTOTUNE).map(early, 3).map(remember).batch(1).map(lambda x: x, AUTOTUNE)
    assert numbers_of(dataset.batches(prefetch=2)) == [[number] for number in range(40)]
    assert seen[0] == 0, "the element spec reads the first"
    assert seen[-40:] == list(range(40))


def test_an_error_lets_the_turn_go_on() -> None:
    def break_at_three(x: int) -> int:
        if x == 3:
            raise RuntimeError("the third")
        return x

    batches = Dataset.range(9).map(lambda x: x, 3).map(break_at_three).batch(1).batches(prefetch=4)
    assert [next(batches).data.tolist() for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(RuntimeError, match="the third"):
        next(batches)


def test_forgetting_wakes_who_waits_for_its_turn() -> None:
    standing: list[threading.Thread] = []
    begun, go_on = threading.Event(), threading.Event()

    def stand(item: int) -> int:
        await_turn()
        standing.append(threading.current_thread())
        begun.set()
        assert go_on.wait(WAIT)
        return item

    items = Prefetcher(iter(range(9)), 2, [stand] * 3)
    assert begun.wait(WAIT)
    threads = prefetch_threads()
    assert len(threads) == 4
    del items
    gc.collect()
    for thread in set(threads) - set(standing):
        thread.join(WAIT)
    assert prefetch_threads() == standing, "one is in the function, the others have ended"
    go_on.set()


def test_error_of_a_parallel_call_comes_in_its_place() -> None:
    def break_at_three(x: int) -> int:
        if x == 3:
            raise RuntimeError("the third")
        return x

    batches = Dataset.range(9).map(break_at_three, num_parallel_calls=3).batch(1).batches(prefetch=4)
    assert [next(batches).data.tolist() for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(RuntimeError, match="the third") as caught:
        next(batches)
    assert "break_at_three" in {frame.name for frame in traceback.extract_tb(caught.tb)}
    assert list(batches) == [], "an error ends the iterator"


def test_parallel_calls_begin_anywhere() -> None:
    dataset = Dataset.range(10).map(lambda x: x, num_parallel_calls=2).batch(1)
    batches = dataset.batches(prefetch=2)
    assert [next(batches).data.tolist() for _ in range(3)] == [[0], [1], [2]]
    again = dataset.batches(prefetch=3)
    again.set_state(batches.get_state())
    assert numbers_of(again) == [[3], [4], [5], [6], [7], [8], [9]] == numbers_of(batches)


def test_forgetting_an_iterator_with_parallel_calls_ends_its_threads() -> None:
    batches = Dataset.range(10).repeat().map(lambda x: x, num_parallel_calls=2).batch(2).batches(prefetch=2)
    assert next(batches).data.tolist() == [0, 1]
    assert len(prefetch_threads()) == 3
    del batches
    gc.collect()  # the fixture waits for the threads


def test_number_of_parallel_calls() -> None:
    with pytest.raises(InputError, match=r"(?s)num_parallel_calls is 0.*stratagem\.data\.AUTOTUNE"):
        Dataset.range(1).map(lambda x: x, num_parallel_calls=0)
    assert numbers_of(Dataset.range(3).map(lambda x: x, AUTOTUNE).batch(3).batches(prefetch=1)) == [[0, 1, 2]]
