"""A parameter server: the store, and what may be asked of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.log import logger
from stratagem.ps.store import Store, change
from stratagem.transport.keys import Role
from stratagem.transport.message import Message
from stratagem.transport.server import Request, error_message

_THREADS: Final = 4
"""Requests that one server works on at once; JAX and NumPy let others run while they compute."""

DONE: Final = "done"


class Service:
    """Answers the requests of a cluster about variables.

    | request  | who may ask | meaning                                                  |
    | -------- | ----------- | -------------------------------------------------------- |
    | `create` | chief       | take parts of variables in                               |
    | `define` | chief       | take an optimizer in (pickled)                           |
    | `read`   | all         | values and versions of parts                             |
    | `change` | all         | set, add to, or apply gradients to parts                 |
    | `report` | all         | counts                                                   |
    | `hello`  | chief       | it is still there                                        |

    Args:
        store: What it holds.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="parameter server")
        self._requests: Mapping[str, tuple[Callable[[Message], Message], tuple[Role, ...]]] = {
            "create": (self._create, (Role.CHIEF,)),
            "define": (self._define, (Role.CHIEF,)),
            "read": (self._read, tuple(Role)),
            "change": (self._change, tuple(Role)),
            "report": (self._report, tuple(Role)),
            "hello": (self._hello, (Role.CHIEF,)),
        }

    def __call__(self, request: Request) -> None:
        """Begin to work on a request."""
        work, roles = self._requests.get(request.message.kind, (None, ()))
        if work is None:
            raise InputError(f"A parameter server cannot answer {request.message.kind!r}.")
        request.require(*roles)
        self._pool.submit(self._answer, work, request)

    def close(self) -> None:
        """Finish what was begun."""
        self._pool.shutdown()

    def _answer(self, work: Callable[[Message], Message], request: Request) -> None:
        try:
            answer = work(request.message)
        except Exception as error:
            logger.warning("parameter server: %r failed: %s", request.message.kind, error)
            answer = error_message(error)
        request.answer(answer)

    def _create(self, message: Message) -> Message:
        """Fields: `parts`, a list of [name, variable]. Arrays: their values, then the pickled constraints."""
        *values, constraints = message.arrays
        loaded = pickle.loads(constraints.data)  # only the chief gets here
        for (name, variable), value, constraint in zip(message.fields["parts"], values, loaded, strict=True):
            self.store.create(name, value, variable, constraint)
        return Message(DONE)

    def _define(self, message: Message) -> Message:
        """Fields: `name`. Arrays: the pickled recipe."""
        self.store.define_optimizer(message.fields["name"], pickle.loads(message.arrays[0].data))
        return Message(DONE)

    def _read(self, message: Message) -> Message:
        """Fields: `names`. The answer has `versions`, and the values as arrays."""
        found = [self.store.read(name) for name in message.fields["names"]]
        return Message(DONE, {"versions": [version for _, version in found]}, [value for value, _ in found])

    def _change(self, message: Message) -> Message:
        """Fields: `operations` (`store.change`). Arrays: one for each."""
        change(self.store, message.fields["operations"], message.arrays)
        return Message(DONE)

    def _hello(self, _: Message) -> Message:
        return Message(DONE)

    def _report(self, _: Message) -> Message:
        store = self.store
        counts: dict[str, Any] = {"names": store.names(), "updates": store.updates, "staleness": store.staleness}
        return Message(DONE, counts)


def pickled(data: bytes) -> np.ndarray:
    """Return pickled bytes as the array that a message carries."""
    return np.frombuffer(data, np.uint8)
