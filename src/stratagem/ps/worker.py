"""A worker: a thread that runs the functions which the chief sends, one after another."""

from __future__ import annotations

import functools
import pickle
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stratagem.core.errors import CancelledError, InputError, UnavailableError
from stratagem.core.made_here import noting
from stratagem.ps.client import Servers
from stratagem.ps.results import taken_apart
from stratagem.ps.synchronous.contributions import Contribution
from stratagem.ps.task import ClosesWhenDropped, WorkerTask, working_for
from stratagem.ps.variables import Residence
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import DONE, ERROR, Message
from stratagem.transport.server import Request, error_message


class Worker:
    """Answers the requests of the chief.

    | request   | meaning                                                                             |
    | --------- | ----------------------------------------------------------------------------------- |
    | `hello`   | the chief is there, or still there; in a new `term` the worker begins with nothing  |
    | `run`     | run a function; the answer is its result                                            |
    | `give up` | let a function change nothing any more; the answer says whether it had not ended    |

    A function that is given up ends where it next asks a parameter server. What is compiled cannot be stopped before.

    A term that another has followed never returns.

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
        self.term = ""
        self.past_terms: set[str] = set()
        self._looking = threading.Lock()
        self._unfinished: set[int] = set()
        """Numbers of the requests to run a function that have no answer yet."""
        self._given_up: set[int] = set()
        """Those of them that were given up."""
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"worker {index}", daemon=True)
        self._thread.start()

    def __call__(self, request: Request) -> None:
        """Begin to work on a request."""
        request.require(Role.CHIEF)
        kind = request.message.kind
        if kind not in ("hello", "run", "give up"):
            raise InputError(f"A worker cannot answer {kind!r}.")
        self._look_at_term(request.message.fields["term"])
        if kind == "hello":
            request.answer(Message(DONE))
        elif kind == "give up":  # in a thread of its own: a request to a parameter server may be under way
            threading.Thread(target=self._give_up, args=(request,), name="giving up", daemon=True).start()
        else:
            with self._looking:
                self._unfinished.add(request.message.id)
            self._queue.put(functools.partial(self._run, request))

    def close(self) -> None:
        """Finish the function that runs, unless it was given up, and end."""
        self._queue.put(None)
        if not self._given_up:
            self._thread.join()
        _drop(self._task.shared.values())
        self._servers.close()

    def _new_task(self) -> WorkerTask:
        stream = 1 + self._index + self._life * self._workers
        return WorkerTask(self._index, self._workers, stream, Residence(self._servers))

    def _look_at_term(self, term: str) -> None:
        """Begin a new term when this is one."""
        if term in self.past_terms:
            raise UnavailableError(
                f"worker {self._index} works for another chief, or in another term.",
                "End this chief: another one has taken its place.",
            )
        if term != self.term:
            self.past_terms.add(self.term)
            self.term = term
            self._queue.put(functools.partial(self._begin, term))

    def _begin(self, term: str) -> None:
        """Begin a term. In the thread that runs functions: one of the term before asks the servers in its own."""
        _drop(self._task.shared.values())
        self._servers.begin(term)
        self._task = self._new_task()

    def _give_up(self, request: Request) -> None:
        """Let a function change nothing any more, if it has not ended. Fields: `request`, the number of that to run."""
        number = request.message.fields["request"]
        with self._looking:
            has_not_ended = number in self._unfinished
            if has_not_ended:
                self._given_up.add(number)
        self._servers.settle()
        request.answer(Message(DONE, {"given_up": has_not_ended}))

    def _refuse_what_is_given_up(self, number: int) -> None:
        if number in self._given_up:
            raise CancelledError(
                "Another scheduled function failed first: this one was given up.",
                "See the error that coordinator.join() raises.",
            )

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _run(self, request: Request) -> None:
        """Run one function.

        Fields: `fresh`, a list of [number, whether to call it] of shared values; `forget`, numbers of those that
        nobody needs any more; `round`, that of the synchronous mode, or None. Arrays: the pickled function and
        arguments, then the shared values.
        """
        message, residence = request.message, self._task.residence
        round = message.fields["round"]
        self._servers.may_ask = functools.partial(self._refuse_what_is_given_up, message.id)
        try:
            self._servers.may_ask()
            residence.contribution = None if round is None else Contribution(round)
            with working_for(self._task):
                nest, arrays = taken_apart(self._called(message))
            given = residence.contribution.give(self._servers) if residence.contribution else None
            answer = Message(DONE, {"value": nest, "contribution": given}, arrays)
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they are the function's
            told = error_message(error).fields
            answer = Message(ERROR, {**told, "traceback": traceback.format_exc()})
        with self._looking:
            self._unfinished.discard(message.id)
            self._given_up.discard(message.id)
        request.answer(answer)

    def _called(self, message: Message) -> Any:
        task = self._task
        for number in message.fields["forget"]:
            task.recipes.pop(number, None)
            _drop([task.shared.pop(number, None)])
        for (number, to_call), data in zip(message.fields["fresh"], message.arrays[1:], strict=True):
            task.recipes[number] = functools.partial(_made, data.tobytes(), to_call)
        function, args, kwargs = pickle.loads(message.arrays[0].data)  # only the chief gets here
        task.own_state.before(function)
        with noting() as made:
            result = function(*args, **kwargs)
        task.own_state.after(function, made)
        return result


def _made(data: bytes, to_call: bool) -> Any:
    value = pickle.loads(data)
    return value() if to_call else value


def _drop(values: Iterable[Any]) -> None:
    """Close what reads ahead in a thread of its own."""
    for value in values:
        if isinstance(value, ClosesWhenDropped):
            value.close()
