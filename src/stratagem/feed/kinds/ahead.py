"""Batches that have numbers, read ahead by several threads or processes and handed out in order."""

from __future__ import annotations

import queue
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from typing import Any

import cloudpickle

from stratagem.core.errors import InputError, UsageError
from stratagem.data.processes.numbered import Copy, NumberedBatch
from stratagem.data.processes.readers import ReaderPool, ReaderProcess
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
            pickled = cloudpickle.dumps(value)
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
            return process.gather(NumberedBatch(self._copy, number), number)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the processes, and wait for them."""
        self._pool.close()


_DEATH = re.compile("terminated abruptly|terminated unexpectedly|exited unexpectedly")


def telling_of_death(batches: Iterator[Tree], kind: str) -> Generator[Tree, None, None]:
    """Yield batches; explain when a process that reads them has died.

    Args:
        batches: A pass of Grain's or of torch's.
        kind: Whose, for the error.

    Raises:
        UsageError: A process has ended.
    """
    try:
        yield from batches
    except RuntimeError as error:
        if not _DEATH.search(str(error)):
            raise
        raise UsageError(
            f"A process that reads batches of a {kind} has ended: {error}",
            "Such a process imports the program once more, and what stands at its top level is done again: a "
            "strategy made, a training begun. Or it was killed, as for want of memory.",
            'Put all but imports and definitions under `if __name__ == "__main__":`, and look at the output above.',
        ) from None
