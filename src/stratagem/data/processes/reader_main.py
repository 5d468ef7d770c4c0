"""The program of a reader process, which reads what its worker sends, one request after another.

It imports neither JAX nor Keras (the user's functions and datasets may). It is no task of the cluster, and ends with
its worker.
"""

from __future__ import annotations

import io
import os
import pickle
import queue
import signal
import socket
import threading
import traceback
from typing import Any

from stratagem.core import by_value
from stratagem.data.blocks import Block
from stratagem.data.processes import messages
from stratagem.data.processes.messages import Message
from stratagem.data.structure import Tree


def main(fd: int) -> None:
    """Answer requests until the worker closes its end.

    Args:
        fd: This side of the pair of sockets.
    """
    os.set_inheritable(fd, False)  # else a process that a function of the user starts keeps it open
    # A stop of the group is the worker's to handle, which still needs batches when it stores its last steps.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end = socket.socket(fileno=fd)
    end.settimeout(messages.CHECK_SECONDS)
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(end, requests, os.getppid()), daemon=True).start()
    constants: dict[int, object] = {}
    while True:
        answer = _answer(requests.get(), constants)
        try:
            messages.send(end, answer, lambda: None)
        except OSError:
            os._exit(0)


def _listen(end: socket.socket, requests: queue.SimpleQueue[Message], worker: int) -> None:
    """Take requests in, and end the process when the worker is gone, also in the midst of a function of the user."""

    def check() -> None:
        if os.getppid() != worker:
            raise EOFError

    try:
        while True:
            requests.put(messages.receive(end, check))
    finally:
        os._exit(0)


def _answer(request: Message, constants: dict[int, object]) -> Message:
    try:
        return _dumped((True, _read(request, constants)))
    except BaseException as error:
        text = "".join(traceback.format_exception(error)).rstrip()
        try:
            pickle.loads(by_value.dumps(error))
        except Exception:  # an exception that does not travel
            return _dumped((False, (None, text)))
        return _dumped((False, (error, text)))


def _read(request: Message, constants: dict[int, object]) -> Tree:
    method, new, block = pickle.loads(request.pickled)
    if 0 in new:
        constants.clear()
    for number, pickled in new.items():
        constants[number] = pickle.loads(pickled)
    unpickler = _Unpickler(io.BytesIO(block), buffers=request.buffers)
    unpickler.constants = constants
    read = getattr(unpickler.load(), method)()
    return read.gather() if isinstance(read, Block) else read


class _Unpickler(pickle.Unpickler):
    constants: dict[int, object]

    def persistent_load(self, pid: Any) -> object:
        return self.constants[pid]


def _dumped(value: Any) -> Message:
    file, buffers = io.BytesIO(), []
    # By value, because a batch may nest in a named tuple that the main program defines.
    by_value.Pickler(file, buffer_callback=buffers.append).dump(value)
    return Message(file.getvalue(), buffers)
