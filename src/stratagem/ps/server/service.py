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
from typing import Final, TypeAlias

import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError, RefusedError, UnavailableError
from stratagem.core.log import logger
from stratagem.ps.server.addresses import Board
from stratagem.ps.server.store import Store, StoredPart
from stratagem.ps.synchronous.contributions import Contributions
from stratagem.transport.keys import Role, holder_for
from stratagem.transport.message import DONE, Message
from stratagem.transport.server import Request, error_message

_THREADS: Final = 4
"""Requests that one server works on at once; JAX and NumPy let others run while they compute."""

_OF_ANY_TERM: Final = ("begin", "hello")


@dataclass(frozen=True, slots=True)
class _Held:
    """What a server holds in one term."""

    store: Store
    contributions: Contributions

    @classmethod
    def by(cls, store: Store) -> _Held:
        return cls(store, Contributions(store.change))


_Work: TypeAlias = Callable[[_Held, Message], Message | None]
"""Answers a request; None says only that it is done."""


class Service:
    """Answers the requests of a cluster about variables.

    | request      | who may ask | meaning                                                  |
    | ------------ | ----------- | -------------------------------------------------------- |
    | `begin`      | chief       | forget everything; a new term begins                     |
    | `create`     | chief       | take parts of variables in, or expect their values       |
    | `define`     | chief       | take an optimizer in (pickled)                           |
    | `remove`     | chief       | forget parts of variables, and optimizers                |
    | `read`       | all         | values and versions of parts, or of rows of them         |
    | `exchange`   | all         | replace the value of a part, if it is still another one  |
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
        self._held = _Held.by(store)
        self.past_terms: set[str] = set()
        self._term = ""
        self._name = name
        self._board = board or Board()
        self._turn = threading.Lock()
        """Held while the term, and what is held in it, are looked at or changed together."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="parameter server")
        self._requests: Mapping[str, tuple[_Work, tuple[Role, ...]]] = {
            "begin": (self._begin, (Role.CHIEF,)),
            "create": (_create, (Role.CHIEF,)),
            "define": (_define, (Role.CHIEF,)),
            "remove": (_remove, (Role.CHIEF,)),
            "read": (_read, tuple(Role)),
            "exchange": (_exchange, tuple(Role)),
            "change": (_change, tuple(Role)),
            "contribute": (_contribute, tuple(Role)),
            "commit": (_commit, (Role.CHIEF,)),
            "report": (_report, tuple(Role)),
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

    def _answer(self, work: _Work, request: Request) -> None:
        try:
            answer = work(self._held_for(request.message), request.message) or Message(DONE)
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
            "Its earlier values are lost, and results that were computed with them must not count.",
            "Restore the last checkpoint; under `stratagem run --max-restarts` the program begins again by itself.",
        )

    def _begin(self, _: _Held, message: Message) -> None:
        """Fields: `term`."""
        with self._turn:  # requests that are being worked on keep what was held in their term
            self.past_terms.add(self._term)
            self._term, self._held = message.fields["term"], _Held.by(Store())

    def _hello(self, _: _Held, message: Message) -> Message:
        return Message(DONE, {"workers": list(self._board.addresses().items())})

    def _announce(self, request: Request) -> None:
        """Fields: `worker`, its index; `address`; `life`, when it was started."""
        request.require(Role.WORKER)
        where = request.message.fields
        own = holder_for(Role.WORKER, where["worker"])
        if request.holder not in (None, own):
            raise RefusedError(f"{request.holder} said where {own} is; it may report only its own address.")
        self._board.announce(int(where["worker"]), str(where["address"]), int(where["life"]))
        request.answer(Message(DONE))


def _create(held: _Held, message: Message) -> None:
    """Take parts in.

    Fields: `parts`, a list of [name, variable, lazy, expected]; the last is None for a part with a value, else
    [shape, dtype, what is to be restored]. Arrays: the pickled constraints, then the values.
    """
    constraints = pickle.loads(message.arrays[0].data)  # only the chief gets here
    values = iter(message.arrays[1:])
    for (name, variable, lazy, expected), constraint in zip(message.fields["parts"], constraints, strict=True):
        if expected is None:
            value, awaited = next(values), ()
        else:
            shape, dtype, awaited = expected
            value = np.zeros(shape, jnp.dtype(dtype))
        held.store.create(name, StoredPart(value, variable, constraint, lazy, set(awaited)))


def _define(held: _Held, message: Message) -> None:
    """Fields: `name`. Arrays: the pickled recipe."""
    held.store.define_optimizer(message.fields["name"], pickle.loads(message.arrays[0].data))


def _remove(held: _Held, message: Message) -> None:
    """Fields: `parts` and `optimizers`, names."""
    held.store.remove(message.fields["parts"], message.fields["optimizers"])


def _read(held: _Held, message: Message) -> Message:
    """Fields: `names`, and `in_rows` and `taken`: the places of those of which only rows are wanted, and of those that
    go on. Arrays: which rows, then by what they go on.

    The answer has `versions`, and the values as arrays.
    """
    in_rows, taken = message.fields["in_rows"], message.fields["taken"]
    rows = dict(zip(in_rows, message.arrays, strict=False))
    steps = dict(zip(taken, message.arrays[len(in_rows) :], strict=True))
    found = [
        held.store.take(name, steps[place]) if place in steps else held.store.read(name, rows.get(place))
        for place, name in enumerate(message.fields["names"])
    ]
    return Message(DONE, {"versions": [version for _, version in found]}, [value for value, _ in found])


def _exchange(held: _Held, message: Message) -> Message:
    """Fields: `name`. Arrays: the value that it has, and the value that it gets. The answer has `done`."""
    return Message(DONE, {"done": held.store.exchange(message.fields["name"], *message.arrays)})


def _change(held: _Held, message: Message) -> None:
    """Fields: `operations`. Arrays: theirs (`Store.change`)."""
    held.store.change(message.fields["operations"], message.arrays)


def _contribute(held: _Held, message: Message) -> None:
    """Fields: `round`, `contribution` (its name), `weight`, `operations`. Arrays: theirs."""
    round, name, weight = (message.fields[key] for key in ("round", "contribution", "weight"))
    held.contributions.hold(round, name, weight, message.fields["operations"], message.arrays)


def _commit(held: _Held, message: Message) -> None:
    """Fields: `round`, `contributions` (names)."""
    held.contributions.apply(message.fields["round"], message.fields["contributions"])


def _report(held: _Held, _: Message) -> Message:
    store = held.store
    counts = {"updates": store.updates, "staleness": store.staleness, "max staleness": store.max_staleness}
    return Message(DONE, {"names": store.names(), **counts})
