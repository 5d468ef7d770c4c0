"""A parameter server: the store, and what may be asked of it.

A *term* is what a cluster trains in from one beginning to the next. A chief begins one when it starts, and another when
a server was lost; all variables are then made anew. Requests of another term are refused: what a worker computed for a
chief that is gone, or with variables that were restored since, changes nothing. (A fencing token, as the terms of
Raft: https://raft.github.io/raft.pdf, section 5.1.)
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stratagem.core.errors import InputError, RefusedError, UnavailableError
from stratagem.core.log import logger
from stratagem.ps.addresses import Board
from stratagem.ps.contributions import Contributions
from stratagem.ps.store import Store, change
from stratagem.transport.keys import Role, holder_for
from stratagem.transport.message import Message
from stratagem.transport.server import Request, error_message

_THREADS: Final = 4
"""Requests that one server works on at once; JAX and NumPy let others run while they compute."""

DONE: Final = "done"

_OF_ANY_TERM: Final = ("begin", "hello")


@dataclass(frozen=True, slots=True)
class _Held:
    """What a server holds in one term."""

    store: Store
    contributions: Contributions


class Service:
    """Answers the requests of a cluster about variables.

    | request      | who may ask | meaning                                                  |
    | ------------ | ----------- | -------------------------------------------------------- |
    | `begin`      | chief       | forget everything; a new term begins                     |
    | `create`     | chief       | take parts of variables in                               |
    | `expect`     | chief       | take parts in whose values are to be restored            |
    | `define`     | chief       | take an optimizer in (pickled)                           |
    | `remove`     | chief       | forget parts of variables, and optimizers                |
    | `read`       | all         | values and versions of parts, or of rows of them         |
    | `change`     | all         | set, add to, or apply gradients to parts                 |
    | `contribute` | all         | hold such changes for a round                            |
    | `commit`     | chief       | make one change of the contributions to a round          |
    | `report`     | all         | counts                                                   |
    | `hello`      | chief       | it is still there; the answer tells where workers are    |
    | `here`       | worker      | where it is: of itself alone                             |

    Args:
        store: What it holds at first.
        name: Which server this is, in messages.
        board: Where workers announce themselves.
    """

    def __init__(self, store: Store, name: str = "this parameter server", board: Board | None = None) -> None:
        self._held = _Held(store, Contributions(store))
        self.past_terms: set[str] = set()
        self._term = ""
        self._name = name
        self._board = board or Board()
        self._turn = threading.Lock()
        """Held while the term, and what is held in it, are looked at or changed together."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="parameter server")
        self._requests: Mapping[str, tuple[Callable[[_Held, Message], Message], tuple[Role, ...]]] = {
            "begin": (self._begin, (Role.CHIEF,)),
            "create": (self._create, (Role.CHIEF,)),
            "expect": (self._expect, (Role.CHIEF,)),
            "define": (self._define, (Role.CHIEF,)),
            "remove": (self._remove, (Role.CHIEF,)),
            "read": (self._read, tuple(Role)),
            "change": (self._change, tuple(Role)),
            "contribute": (self._contribute, tuple(Role)),
            "commit": (self._commit, (Role.CHIEF,)),
            "report": (self._report, tuple(Role)),
            "hello": (self._hello, (Role.CHIEF,)),
        }

    def __call__(self, request: Request) -> None:
        """Begin to work on a request."""
        if request.message.kind == "here":
            self._announce(request)
            return
        work, roles = self._requests.get(request.message.kind, (None, ()))
        if work is None:
            raise InputError(f"A parameter server cannot answer {request.message.kind!r}.")
        request.require(*roles)
        try:
            self._pool.submit(self._answer, work, request)
        except RuntimeError:
            raise UnavailableError(f"{self._name} ends; it takes no more requests.") from None

    def close(self) -> None:
        """Finish what was begun."""
        self._pool.shutdown()

    def _answer(self, work: Callable[[_Held, Message], Message], request: Request) -> None:
        try:
            answer = work(self._held_for(request.message), request.message)
        except Exception as error:
            logger.warning("parameter server: %r failed: %s", request.message.kind, error)
            answer = error_message(error)
        request.answer(answer)

    def _held_for(self, message: Message) -> _Held:
        """Return what is held; refuse a request of another term."""
        with self._turn:
            if message.kind in _OF_ANY_TERM or message.fields.get("term") == self._term:
                return self._held
        raise UnavailableError(
            f"{self._name} has begun anew: it was started again, or a chief began another term.",
            "What it held before is gone, and what was computed with that must not count.",
            "Restore the last checkpoint; under `stratagem run --max-restarts` the program begins again by itself.",
        )

    def _begin(self, _: _Held, message: Message) -> Message:
        """Fields: `term`."""
        with self._turn:  # requests that are being worked on keep what was held in their term
            store = Store()
            self.past_terms.add(self._term)
            self._term, self._held = message.fields["term"], _Held(store, Contributions(store))
        return Message(DONE)

    def _create(self, held: _Held, message: Message) -> Message:
        """Fields: `parts`, a list of [name, variable, lazy]. Arrays: their values, then the pickled constraints."""
        *values, constraints = message.arrays
        loaded = pickle.loads(constraints.data)  # only the chief gets here
        for (name, variable, lazy), value, constraint in zip(message.fields["parts"], values, loaded, strict=True):
            held.store.create(name, value, variable, constraint, lazy=lazy)
        return Message(DONE)

    def _expect(self, held: _Held, message: Message) -> Message:
        """Fields: `parts`, a list of [name, variable, lazy, shape, dtype, slots]. Arrays: the pickled constraints."""
        loaded = pickle.loads(message.arrays[0].data)  # only the chief gets here
        for (name, variable, lazy, *rest), constraint in zip(message.fields["parts"], loaded, strict=True):
            shape, dtype, slots = rest
            held.store.expect(name, shape, dtype, slots, variable, constraint, lazy=lazy)
        return Message(DONE)

    def _define(self, held: _Held, message: Message) -> Message:
        """Fields: `name`. Arrays: the pickled recipe."""
        held.store.define_optimizer(message.fields["name"], pickle.loads(message.arrays[0].data))
        return Message(DONE)

    def _remove(self, held: _Held, message: Message) -> Message:
        """Fields: `parts` and `optimizers`, names."""
        held.store.remove(message.fields["parts"], message.fields["optimizers"])
        return Message(DONE)

    def _read(self, held: _Held, message: Message) -> Message:
        """Fields: `names`, and `in_rows`: the places of those of which only rows are wanted. Arrays: which rows.

        The answer has `versions`, and the values as arrays.
        """
        rows = dict(zip(message.fields["in_rows"], message.arrays, strict=True))
        found = [held.store.read(name, rows.get(place)) for place, name in enumerate(message.fields["names"])]
        return Message(DONE, {"versions": [version for _, version in found]}, [value for value, _ in found])

    def _change(self, held: _Held, message: Message) -> Message:
        """Fields: `operations`. Arrays: theirs (`store.change`)."""
        change(held.store, message.fields["operations"], message.arrays)
        return Message(DONE)

    def _contribute(self, held: _Held, message: Message) -> Message:
        """Fields: `round`, `contribution` (its name), `weight`, `operations`. Arrays: one for each operation."""
        fields = message.fields
        held.contributions.hold(
            fields["round"], fields["contribution"], fields["weight"], fields["operations"], message.arrays
        )
        return Message(DONE)

    def _commit(self, held: _Held, message: Message) -> Message:
        """Fields: `round`, `contributions` (names)."""
        held.contributions.apply(message.fields["round"], message.fields["contributions"])
        return Message(DONE)

    def _announce(self, request: Request) -> None:
        """Fields: `worker`, its index; `address`; `life`, when it was started."""
        request.require(Role.WORKER)
        where = request.message.fields
        own = holder_for(Role.WORKER, where["worker"])
        if request.holder not in (None, own):
            raise RefusedError(f"{request.holder} said where {own} is; it may speak for itself only.")
        self._board.announce(int(where["worker"]), str(where["address"]), int(where["life"]))
        request.answer(Message(DONE))

    def _hello(self, _: _Held, message: Message) -> Message:
        return Message(DONE, {"workers": list(self._board.addresses().items())})

    def _report(self, held: _Held, _: Message) -> Message:
        store = held.store
        counts: dict[str, Any] = {
            "names": store.names(),
            "updates": store.updates,
            "staleness": store.staleness,
            "max staleness": store.max_staleness,
        }
        return Message(DONE, counts)


def pickled(data: bytes) -> np.ndarray:
    """Return pickled bytes as the array that a message carries."""
    return np.frombuffer(data, np.uint8)
