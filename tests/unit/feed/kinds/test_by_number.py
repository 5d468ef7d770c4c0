"""Batches by number: their order, pauses, and reader processes that read them from copies."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError, ReaderError
from stratagem.feed.kinds.by_number import Ahead, Processes


def done(number: int) -> Future[int]:
    """Return what has read a batch already."""
    future: Future[int] = Future()
    future.set_result(10 * number)
    return future


def test_batches_come_in_order_and_no_more_are_read_than_the_window() -> None:
    begun: list[int] = []
    ahead = Ahead(lambda: lambda number: (begun.append(number), done(number))[1], itertools.count(), 3)
    assert [next(ahead), next(ahead)] == [0, 10]
    assert begun == [0, 1, 2, 3]


def test_what_was_read_ahead_of_a_pause_is_read_again() -> None:
    begun: list[int] = []
    starts: list[int] = []

    def start() -> Any:
        starts.append(len(begun))
        return lambda number: (begun.append(number), done(number))[1]

    ahead = Ahead(start, iter(range(4)), 3)
    assert next(ahead) == 0
    ahead.pause()
    assert list(ahead) == [10, 20, 30]
    assert begun == [0, 1, 2, 1, 2, 3]
    assert starts == [0, 3], "each start may read from another copy"
    ahead.close()
    assert list(ahead) == []


def test_a_pause_waits_for_what_is_being_read() -> None:
    may_end, ended = threading.Event(), threading.Event()

    def read(number: int) -> int:
        may_end.wait(20)
        ended.set()
        return number

    with ThreadPoolExecutor(1) as threads:
        ahead = Ahead(lambda: lambda number: threads.submit(read, number) if number else done(0), iter(range(9)), 2)
        assert next(ahead) == 0
        threading.Timer(0.01, may_end.set).start()
        ahead.pause()
        assert ended.is_set()


class Squares:
    """Batches by number, with an attribute that changes."""

    factor = 1

    def __getitem__(self, number: int) -> Any:
        if number == 7:
            os._exit(5)
        if number == 8:
            raise KeyError("eight")
        return np.full(2, number**2 * self.factor), os.getpid()


@pytest.mark.multiprocess
def test_processes_read_from_copies_that_follow_the_object() -> None:
    squares = Squares()
    processes = Processes(2)
    try:
        processes.send(squares)
        with ThreadPoolExecutor(2) as threads:
            (first, one), (second, other) = threads.map(processes.read, (3, 4))
        assert (first.tolist(), second.tolist()) == ([9, 9], [16, 16])
        assert os.getpid() not in (one, other)
        squares.factor = 10
        assert processes.read(3)[0].tolist() == [9, 9], "the copy does not change by itself"
        processes.send(squares)
        assert processes.read(3)[0].tolist() == [90, 90]
        with pytest.raises(KeyError, match="eight") as caught:
            processes.read(8)
        assert "at batch 8" in caught.value.__notes__[0]
        with pytest.raises(ReaderError, match=r"(?s)exit code 5\) while it read batch 7.*use_multiprocessing=False"):
            processes.read(7)
    finally:
        processes.close()


def test_what_does_not_pickle_is_said() -> None:
    class Locked(keras.utils.PyDataset):
        lock = threading.Lock()

    processes = Processes(1)
    with pytest.raises(InputError, match=r"Locked cannot be sent(.|\n)*use_multiprocessing=False"):
        processes.send(Locked())
    processes.close()
