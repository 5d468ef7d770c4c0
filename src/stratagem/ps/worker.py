"""A worker: runs the functions that the chief sends, one after another, in a thread of its own."""

from __future__ import annotations

import pickle
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from stratagem.core.errors import InputError
from stratagem.ps.client import Servers
from stratagem.ps.nest import taken_apart
from stratagem.ps.task import ClosesWhenDropped, WorkerTask, working_for
from stratagem.ps.variables import Residence
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import Message
from stratagem.transport.server import ERROR, Request, error_message

DONE: Final = "done"


class Worker:
    """Answers the requests of the chief.

    | request | meaning                                                                             |
    | ------- | ----------------------------------------------------------------------------------- |
    | `hello` | the chief is there, or still there; a new chief (`chief`) begins with nothing       |
    | `run`   | run a function; the answer is its result                                            |

    Args:
        index: Which worker this is.
        workers: How many there are.
        servers: Addresses of the parameter servers.
        keys: The keys of this task, or None.
        life: Tells apart the lives of this worker: an integer.
    """

    def __init__(self, index: int, workers: int, servers: Sequence[str], keys: Keys | None, life: int) -> None:
        self._index, self._workers, self._life = index, workers, life
        self._servers = Servers(servers, keys)
        self._task = self._new_task()
        self._chief: str | None = None
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"worker {index}", daemon=True)
        self._thread.start()

    def __call__(self, request: Request) -> None:
        """Begin to work on a request."""
        request.require(Role.CHIEF)
        message = request.message
        match message.kind:
            case "hello":
                if message.fields["chief"] != self._chief:
                    self._chief = message.fields["chief"]
                    self._queue.put(self._begin_anew)
                request.answer(Message(DONE))
            case "run":
                self._queue.put(lambda: self._run(request))
            case kind:
                raise InputError(f"A worker cannot answer {kind!r}.")

    def close(self) -> None:
        """Finish the function that runs, and end."""
        self._queue.put(None)
        self._thread.join()
        _drop(self._task.shared.values())
        self._servers.close()

    def _new_task(self) -> WorkerTask:
        stream = 1 + self._index + self._life * self._workers
        return WorkerTask(self._index, self._workers, stream, Residence(self._servers))

    def _begin_anew(self) -> None:
        _drop(self._task.shared.values())
        self._task = self._new_task()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _run(self, request: Request) -> None:
        """Run one function.

        Fields: `fresh`, a list of [number, whether to call it] of shared values; `forget`, numbers of those that
        nobody needs any more. Arrays: the pickled function and arguments, then the shared values.
        """
        message = request.message
        try:
            with working_for(self._task):
                nest, arrays = taken_apart(self._called(message))
            answer = Message(DONE, {"value": nest}, arrays)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they are the function's
            told = error_message(error).fields
            answer = Message(ERROR, {**told, "traceback": traceback.format_exc()})
        request.answer(answer)

    def _called(self, message: Message) -> Any:
        shared = self._task.shared
        for number in message.fields["forget"]:
            _drop([shared.pop(number, None)])
        for (number, to_call), data in zip(message.fields["fresh"], message.arrays[1:], strict=True):
            value = pickle.loads(data.data)  # only the chief gets here
            shared[number] = value() if to_call else value
        function, args, kwargs = pickle.loads(message.arrays[0].data)
        return function(*args, **kwargs)


def _drop(values: Iterable[Any]) -> None:
    """Close what reads ahead in a thread of its own."""
    for value in values:
        if isinstance(value, ClosesWhenDropped):
            value.close()
