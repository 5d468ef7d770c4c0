"""Batches that have numbers: read ahead by several threads or processes, and handed out in order."""

from __future__ import annotations

import functools
import itertools
import queue
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from stratagem.core import by_value
from stratagem.core.errors import InputError
from stratagem.data.processes.numbered import Copy, NumberedBatch
from stratagem.data.processes.readers import ReaderPool, ReaderProcess
from stratagem.feed.kinds.base import Input, Pass, no_batch
from stratagem.mesh.mesh import Tree

Submit = Callable[[int], "Future[Tree]"]
"""Begins to read the batch of a number."""


class Ahead:
    """The batches of some numbers, in their order.

    Args:
        start: Returns what begins to read one; called at the start and after each pause.
        numbers: Which; it may have no end.
        window: How many are being read, or read and not yet taken.
    """

    def __init__(self, start: Callable[[], Submit], numbers: Iterator[int], window: int) -> None:
        self._start = start
        self._submit: Submit | None = None
        self._numbers = numbers
        self._window = max(1, window)
        self._waiting: deque[int] = deque()  # numbers that come before those of `_numbers`
        self._reading: deque[tuple[int, Future[Tree]]] = deque()

    def __iter__(self) -> Iterator[Tree]:
        return self

    def __next__(self) -> Tree:
        self._submit = self._submit or self._start()
        while len(self._reading) < self._window:
            number = self._waiting.popleft() if self._waiting else next(self._numbers, None)
            if number is None:
                break
            self._reading.append((number, self._submit(number)))
        if not self._reading:
            raise StopIteration
        return self._reading.popleft()[1].result()

    def pause(self) -> None:
        """Wait until nothing is being read, and forget what was read ahead: it is read again when it is asked for."""
        self._waiting.extendleft(number for number, _ in reversed(self._reading))
        for _, future in self._reading:
            future.cancel()
        wait([future for _, future in self._reading])
        self._reading.clear()
        self._submit = None

    def close(self) -> None:
        """End the pass."""
        self.pause()
        self._waiting.clear()
        self._numbers = iter(())


class NumberedInput(Input):
    """An input whose batches are read by their numbers.

    Args:
        batches: Has them by number.
    """

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self._reading: Ahead | None = None
        self._threads: ThreadPoolExecutor | None = None

    def begin(self, earlier: Sequence[int], first: int) -> Pass:
        numbers = self._numbers(len(earlier), first)
        threads, window = self._at_once()
        if not threads:
            return (self._batches[number] for number in numbers)
        self._reading = Ahead(functools.partial(self._start, threads), numbers, window)
        return self._reading

    def sample(self, earlier: Sequence[int], first: int) -> Tree:
        # Not the pass's own batch: on_epoch_begin, which comes in between, may change it.
        for number in self._numbers(len(earlier), 0):
            return self._batches[number]
        raise no_batch()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._threads = self._reading = None

    @abstractmethod
    def _at_once(self) -> tuple[int, int]:
        """Return how many threads read, 0 for none but the caller's, and how many batches are held ready."""

    def _numbers(self, number: int, first: int) -> Iterator[int]:
        """Return the numbers of the batches of a pass, from one of them on."""
        return itertools.count(first) if self.num_batches is None else iter(range(first, self.num_batches))

    def _read_by(self) -> Callable[[int], Tree]:
        """Return what reads a batch, in one of the threads."""
        return self._batches.__getitem__

    def _start(self, threads: int) -> Submit:
        self._threads = self._threads or ThreadPoolExecutor(threads)
        return functools.partial(self._threads.submit, self._read_by())


class Processes:
    """Reader processes for the batches of an object. Each has a copy of it, a new one when the object has changed.

    Args:
        count: How many processes.
    """

    def __init__(self, count: int) -> None:
        self._pool = ReaderPool(count, without="use_multiprocessing=False")
        self._idle: queue.SimpleQueue[ReaderProcess] = queue.SimpleQueue()
        for process in self._pool.processes:
            self._idle.put(process)
        self._copy = Copy(b"")

    def send(self, value: Any) -> None:
        """Let the processes read from the object as it is now. Nothing may be being read.

        Args:
            value: Has batches by number, and pickles.

        Raises:
            InputError: It does not pickle.
        """
        try:
            pickled = by_value.dumps(value)
        except Exception as error:
            raise InputError(
                f"{type(value).__name__} cannot be sent to other processes: {error}",
                "With use_multiprocessing=True each process reads from a copy, made by pickling.",
                "Keep open files and locks out of its attributes, or use threads: use_multiprocessing=False with "
                "workers.",
            ) from error
        if pickled != self._copy.pickled:
            self._copy = Copy(pickled)
            self._pool.begin_pass()

    def read(self, number: int) -> Tree:
        """Read a batch. Several threads may call this at once, one for each process."""
        process = self._idle.get()
        try:
            return process.ask("gather", NumberedBatch(self._copy, number), number)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the processes, and wait for them."""
        self._pool.close()
