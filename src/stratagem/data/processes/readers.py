"""Reader processes: they read batches for one worker, beside its own Python. They are no tasks of the cluster.

A block goes to the process as a pickle, and its rows come back. The program that is running is not imported there, so
that it needs no `if __name__ == "__main__":`; functions travel by value, once in a pass over the data. So do
objects that have batches by number (`data.processes.numbered`). A process ends when its worker does, however that ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any, Final

from stratagem.core import by_value, environment
from stratagem.core.errors import InputError, ReaderError
from stratagem.data.blocks import Block, ColumnsBlock
from stratagem.data.processes import messages
from stratagem.data.processes.messages import Message
from stratagem.data.processes.numbered import NumberedBatch
from stratagem.data.structure import Tree

_END_SECONDS = 1.0
"""A process whose worker has closed the connection ends at once; after this time it is killed."""

_MOST_CONSTANTS: Final = 1000
"""The most functions and sources that a process remembers."""

_CLUSTER: Final = (
    environment.TF_CONFIG,
    environment.SLURM_PROCID,
    environment.OMPI_SIZE,
    environment.PMI_SIZE,
    environment.HOROVOD_SIZE,
    environment.WORLD_SIZE,
    environment.JAX_NUM_PROCESSES,
    environment.JOB_COMPLETION_INDEX,
    environment.SM_HOSTS,
    environment.LAUNCHED,
    environment.LAUNCHER_PIPE,
    environment.GENERATION,
    environment.COUNTERS_FILE,
    environment.NUM_CPU_DEVICES,
    environment.KEYS,
    environment.SECRET,
    environment.SECRET_FILE,
)
"""Variables that make a process a task of a cluster."""


class ReaderPool:
    """Some reader processes. Each starts with the first block that it is to read; all end with this object.

    Args:
        count: How many.
        without: What to write so that none are used, for messages.
    """

    def __init__(self, count: int, without: str = "options.reader_processes = 0") -> None:
        self.processes = [ReaderProcess(number, count, without) for number in range(count)]
        self._finalizer = weakref.finalize(self, _close, self.processes, os.getpid())

    def begin_pass(self) -> None:
        """Send functions again: what they refer to may have changed since the last pass."""
        for process in self.processes:
            process.begins_pass = True

    def close(self) -> None:
        """End the processes, also in the midst of a function of the user. A second call does nothing."""
        self._finalizer()


def _close(processes: list[ReaderProcess], owner: int) -> None:
    if os.getpid() == owner:  # a copy of the worker that os.fork() made must leave the worker's processes alone
        for process in processes:
            process.disconnect()
        for process in processes:
            process.close()


class ReaderProcess:
    """One reader process, and this side's end of the connection.

    Attributes:
        begins_pass: Whether the next block is the first of a pass.

    Args:
        number: Its number in the pool, from 0.
        count: How many there are.
        without: What to write so that none are used, for messages.
    """

    def __init__(self, number: int, count: int, without: str) -> None:
        self._without = without
        self._name = f"Reader process {number + 1} of {count}"
        self._process: subprocess.Popen[bytes] | None = None
        self._end: socket.socket | None = None
        self._sent: dict[int, tuple[int, object]] = {}
        self._closed = False
        self.begins_pass = True
        # A thread of a pass that was closed may still wait for its answer when the next pass begins.
        self._turn = threading.Lock()

    def inside(self, element: Block, batch: int) -> Block:
        """Return the rows of the only element of a block, which is a batch; `batch` is its number."""
        if element.in_batches or element.local:
            return element.inside()
        return ColumnsBlock(self.ask("inside", element.portable(), batch))

    def gather(self, rows: Block, batch: int) -> Tree:
        """Read the rows of a batch."""
        return rows.gather() if rows.local else self.ask("gather", rows.portable(), batch)

    def ask(self, method: str, rows: Block | NumberedBatch, batch: int) -> Tree:
        """Return what a method of some rows returns in the process.

        Args:
            method: Its name.
            rows: The rows.
            batch: Number of the batch, for messages.

        Raises:
            ReaderError: The process ended, or raised what does not travel; any other exception as it is.
        """
        with self._turn:
            request, sent = self._request(method, rows)
            try:
                end = self._connection()
                messages.send(end, request, self._check)
                answer = messages.receive(end, self._check)
            except (EOFError, OSError):
                raise self._ended(batch) from None
            good, value = pickle.loads(answer.pickled, buffers=answer.buffers)
            if good:
                self._sent = sent
                return value
        error, text = value
        if error is None:
            raise ReaderError(
                f"Batch {batch} could not be read. {self._name} shows:\n{text}",
                "The exception itself could not be sent to the worker.",
                "Fix the function that the traceback names.",
            )
        error.add_note(f"In {self._name[0].lower()}{self._name[1:]}, at batch {batch}:\n{text}")
        raise error

    def _request(self, method: str, rows: Block | NumberedBatch) -> tuple[Message, dict[int, tuple[int, object]]]:
        file, buffers = io.BytesIO(), []
        pickler = _Pickler(file, buffer_callback=buffers.append)
        # Datasets that interleave makes bring new functions for ever. Number 0 tells the process to forget the rest.
        forgets, self.begins_pass = self.begins_pass or len(self._sent) > _MOST_CONSTANTS, False
        pickler.sent, pickler.new = {} if forgets else dict(self._sent), {}
        pickler.dump(rows)
        return Message(pickle.dumps((method, pickler.new, file.getvalue())), buffers), pickler.sent

    def _connection(self) -> socket.socket:
        if self._closed:
            raise EOFError
        if self._end is None:
            self._end, theirs = socket.socketpair()
            self._end.settimeout(messages.CHECK_SECONDS)
            with theirs:
                # Not the interpreter's own multiprocessing: its children run the main program again.
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM.format(path=sys.path, fd=theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=_environment(),
                )
        return self._end

    def _check(self) -> None:
        if self._closed or (self._process is not None and self._process.poll() is not None):
            raise EOFError

    def _ended(self, batch: int) -> ReaderError:
        self.disconnect()
        code = self._wait()
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        memory = " The system's memory may have been full." if code == -signal.SIGKILL else ""
        return ReaderError(
            f"{self._name} ended ({how}) while it read batch {batch}.{memory}",
            f"Look at what the process printed last; or write {self._without}. The functions of the dataset then run "
            "in the worker, where you can use a debugger.",
        )

    def disconnect(self) -> None:
        """Close this end: the process ends by itself."""
        self._closed = True
        if self._end is not None:
            with contextlib.suppress(OSError):  # the other side is gone
                self._end.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer; close would not

    def close(self) -> None:
        """End the process, and wait for it."""
        self.disconnect()
        self._wait()
        if self._end is not None:
            self._end.close()

    def _wait(self) -> int:
        if self._process is None:
            return 0
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; from stratagem.data.processes.reader_main import main; main({fd})"
)


def _environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name not in _CLUSTER}
    # A process may end at any moment, and what its functions print must not be in a buffer then.
    variables |= {environment.JAX_PLATFORMS: "cpu", environment.PYTHONUNBUFFERED: "1"}
    # One thread each: there are as many processes as cores that the program wants to give them.
    return variables | dict.fromkeys(environment.THREAD_COUNTS, "1")


class _Pickler(by_value.Pickler):
    """Pickles a block. What many blocks refer to is pickled apart from it, and once."""

    sent: dict[int, tuple[int, object]]
    """By the id of an object: its number, and the object, which keeps the id from being used again."""

    new: dict[int, bytes]

    def persistent_id(self, obj: Any) -> int | None:
        if isinstance(obj, Block | NumberedBatch):
            for constant in obj.constants:
                self._send_once(constant)
        known = self.sent.get(id(obj))
        return None if known is None else known[0]

    def _send_once(self, constant: object) -> None:
        if id(constant) in self.sent:
            return
        number = len(self.sent)
        try:
            self.new[number] = by_value.dumps(constant)
        except Exception as error:
            raise InputError(
                f"{constant} cannot go to a reader process: {type(error).__name__}: {error}",
                "Let the function make objects that cannot be pickled (an open file, a lock, a connection) in its "
                "first call. Or write options.reader_processes = 0.",
            ) from error
        self.sent[id(constant)] = number, constant
