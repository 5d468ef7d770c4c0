"""Batches that have numbers, read ahead by several threads or processes and handed out in order."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import re
import shutil
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import jax

from stratagem.core.errors import InputError, UsageError
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
    """Processes that read batches of an object, begun with `spawn`: JAX does not survive a fork.

    Each has a copy of the object, and gets a new one when the object has changed. Nothing may be being read then.

    Args:
        count: How many processes.
    """

    def __init__(self, count: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stratagem-readers-"))
        # A custom loop forgets its dataset, and closes nothing; the processes end by themselves then.
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin_reading)
        self._copies = 0
        self._pickled = b""

    def send(self, value: Any) -> Submit:
        """Return what begins to read from a copy of the object as it is now.

        Args:
            value: Has batches by number, and pickles.

        Raises:
            InputError: It does not pickle.
        """
        try:
            pickled = bytes(ForkingPickler.dumps(value))
        except Exception as error:
            raise InputError(
                f"{type(value).__name__} cannot be sent to other processes: {error}",
                "With use_multiprocessing=True each process reads from a copy, made by pickling.",
                "Keep open files, locks and lambdas out of its attributes, or use threads: "
                "use_multiprocessing=False with workers.",
            ) from error
        if pickled != self._pickled:
            self._path.unlink(missing_ok=True)
            self._pickled, self._copies = pickled, self._copies + 1
            self._path.write_bytes(pickled)
        path = str(self._path)
        return lambda number: self._executor.submit(_read, path, number)

    @property
    def _path(self) -> Path:
        return self._folder / str(self._copies)

    def close(self) -> None:
        """End the processes, and wait for them."""
        self._executor.shutdown(cancel_futures=True)
        self._remove()


_copy: tuple[str, Any] = ("", None)
_DEATH = re.compile("terminated abruptly|terminated unexpectedly|exited unexpectedly")


def _begin_reading() -> None:
    """Prepare a process that reads: the devices are those of the program, and so is its life."""
    jax.config.update("jax_platforms", "cpu")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    # The queue that a process waits at has no end when a killed program leaves it behind: it would stay for ever.
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _read(path: str, number: int) -> Tree:
    global _copy
    if _copy[0] != path:
        _copy = path, pickle.loads(Path(path).read_bytes())
    return _copy[1][number]


def telling_of_death(batches: Iterator[Tree], kind: str) -> Generator[Tree, None, None]:
    """Yield batches; explain when a process that reads them has died.

    Args:
        batches: A pass. Its errors are those of `concurrent.futures`, of Grain or of torch.
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
