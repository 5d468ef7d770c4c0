"""The I/O shell round `Dispatch`: one thread that talks to all workers and parameter servers."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import zmq

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError, UsageError
from stratagem.core.log import announce
from stratagem.ps.commits import Commits
from stratagem.ps.dispatch import (
    Abort,
    Awaited,
    Begun,
    Broken,
    Commit,
    Committed,
    Dispatch,
    Event,
    Failed,
    Finished,
    Forsaken,
    Raised,
    Scheduled,
    Send,
    WorkerLost,
    WorkerUp,
)
from stratagem.ps.links import Link, Links
from stratagem.ps.results import put_together
from stratagem.ps.service import pickled
from stratagem.ps.shared import Shared, SharedValues
from stratagem.transport.channel import Channel, raise_if_error
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import Message, MessageError
from stratagem.transport.server import ERROR

MOST_QUEUED: Final = 1 << 16
"""How many functions may wait for workers; `schedule` then waits too. (TensorFlow's bound is four times that.)"""


class Receiver(Protocol):
    """Who waits for the result of a function. Called while the crew is locked, so it must be short."""

    def finish(self, value: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def abort(self) -> None: ...


@dataclass(slots=True)
class Job:
    """A closure as the crew knows it.

    Args:
        payload: Function and arguments, pickled.
        needs: Numbers of the shared values that it refers to.
        receiver: Who waits for its result.
    """

    payload: bytes
    needs: frozenset[int]
    receiver: Receiver


class Crew:
    """Runs closures on workers.

    Args:
        workers: Their addresses, by index.
        servers: Addresses of the parameter servers.
        keys: The keys of the chief, or None.
        dispatch: Says which closure runs where, and when.
        patience_seconds: How long to wait for the first worker, or for one to come back, when there is none.
        clock: Where time comes from.
    """

    def __init__(
        self,
        workers: Sequence[str],
        servers: Sequence[str],
        keys: Keys | None = None,
        *,
        dispatch: Dispatch | None = None,
        patience_seconds: float = 300.0,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._patience_seconds = patience_seconds
        self.worker_count = len(workers)
        self.dispatch = dispatch or Dispatch()
        self._changed = threading.Condition()
        """Held whenever something is looked at or changed; notified when somebody may be waiting for it."""
        self._term = ""
        self._connects_anew = False
        self.has_told_of_loss = False
        """Whether the program has been told, in this term, that a parameter server was lost."""
        self._jobs: dict[int, Job] = {}
        self._shared = SharedValues()
        self._numbers = itertools.count()
        self._outbox: deque[tuple[int, int]] = deque()
        self._commits = Commits(self._term, range(len(servers)), self._clock)
        self._unwanted: deque[int] = deque()
        self._links = Links(workers, servers, keys, self._clock)
        self._alone_since = Deadline(patience_seconds, self._clock)
        self._context = zmq.Context()
        self._wake_end = self._context.socket(zmq.PAIR)
        self._wake_end.bind("inproc://wake")
        self._wake = self._context.socket(zmq.PAIR)
        self._wake.connect("inproc://wake")
        self._is_awake = False
        self._closing = False
        self._thread = threading.Thread(target=self._talk, name="coordinator", daemon=True)
        self._thread.start()

    def share(self, data: bytes, needs: frozenset[int] = frozenset(), *, to_call: bool) -> int:
        """Take in a value that workers shall hold; each gets it with the first closure that needs it.

        Args:
            data: Pickled value, or function that returns it.
            needs: Numbers of shared values that it refers to.
            to_call: Whether it is such a function.

        Returns:
            Its number.
        """
        with self._changed:
            number = next(self._numbers)
            self._shared.add(number, Shared(data, to_call, needs))
            return number

    def forget(self, number: int) -> None:
        """Let workers drop a shared value, once no closure refers to it. Any thread may call it at any moment."""
        self._unwanted.append(number)

    def begin(self, term: str) -> None:
        """Begin a term (`service`): give up what is under way, and let workers, too, begin with nothing."""
        with self._changed:
            self._term = term
            self._handle(Begun())
            self.has_told_of_loss = False
            servers = [link.index for link in self._links if link.role is Role.PS]
            self._commits = Commits(term, servers, self._clock)
            self._connects_anew = True  # sockets belong to the thread
            self._rouse()

    def _release(self, numbers: Iterable[int]) -> None:
        for number in self._shared.release(numbers):
            for link in self._links:
                if number in link.known:
                    link.known.discard(number)
                    link.forget.append(number)

    def _end_job(self, closure: int) -> Receiver:
        job = self._jobs.pop(closure)
        self._release(job.needs)
        return job.receiver

    def schedule(self, job: Job) -> None:
        """Queue a closure; wait while too many are queued.

        Raises:
            Exception: The error of an earlier closure; this one is not queued.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.dispatch.error is not None or len(self.dispatch.queued) < MOST_QUEUED)
            self._raise_if_due()
            number = next(self._numbers)
            self._jobs[number] = job
            self._shared.use(job.needs)
            self._handle(Scheduled(number))

    def join(self) -> None:
        """Wait until every closure has run.

        Raises:
            Exception: The error of a closure; nothing is left running.
        """
        with self._changed:
            self._changed.wait_for(self._is_done)
            self._raise_if_due()

    def done(self) -> bool:
        """Return whether every closure has run; raise the error of one."""
        with self._changed:
            self._raise_if_due()
            return self._is_done()

    def _is_done(self) -> bool:
        """Return whether all is done; where the open round waits for closures, let it be applied without them."""
        if self.dispatch.waits_for_more:
            self._handle(Awaited())
        return self.dispatch.is_idle

    def wait_for(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something a receiver was told holds, and no server is applying a round.

        What the program reads next would otherwise be new on one server and old on another.

        Args:
            holds: Looks at it.
            seconds: How long to wait; None until the cluster says that it will not come.
        """
        with self._changed:
            return self._changed.wait_for(lambda: holds() and not self._is_committing, seconds)

    @property
    def _is_committing(self) -> bool:
        return self.dispatch.rounds is not None and self.dispatch.rounds.is_committing

    @property
    def addresses(self) -> dict[tuple[Role, int], str]:
        """Where each task is called."""
        return self._links.addresses

    def counts(self) -> dict[str, int]:
        """Return how many closures are queued and in flight, workers are up, and what has happened so far."""
        with self._changed:
            links = [link.channel for link in self._links if link.channel is not None]
            return {
                "queued": len(self.dispatch.queued),
                "in flight": self.dispatch.running,
                "workers up": len(self.dispatch.in_flight),
                **dict.fromkeys(("scheduled", "finished", "failed", "aborted", "retried", "workers lost"), 0),
                **dict.fromkeys(("rounds", "dropped"), 0),
                **self.dispatch.counts,
                "bytes sent": sum(channel.sent_bytes for channel in links),
                "bytes received": sum(channel.received_bytes for channel in links),
            }

    def close(self) -> None:
        """End the thread; who waits for closures that have not run is told. Harmless when closed."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._rouse()
        self._thread.join()
        self._context.destroy(linger=0)

    def _raise_if_due(self) -> None:
        if self.dispatch.error is None:
            return
        self._changed.wait_for(lambda: self.dispatch.due is not None)
        error = self.dispatch.due
        assert error is not None
        self._handle(Raised())
        self.tell(error)
        raise error

    def raise_if_broken(self) -> None:
        """Raise the error because of which the cluster can do no more in this term, if there is one."""
        with self._changed:
            if self.dispatch.broken:
                self._raise_if_due()

    def tell(self, error: BaseException) -> None:
        """Take note of an error that the program is told."""
        self.has_told_of_loss |= self.dispatch.broken and isinstance(error, UnavailableError)

    def _handle(self, event: Event) -> None:
        """Let the machine react, and do what it says. The lock is held."""
        instructions = self.dispatch.handle(event)
        if not self._is_committing:
            self._commits.give_up()  # applied, or broken
        for instruction in instructions:
            match instruction:
                case Abort(closure):
                    self._end_job(closure).abort()
                case Commit():
                    self._commits.begin(instruction)
                case Send(worker, closure):
                    self._outbox.append((worker, closure))
        if instructions:
            self._rouse()

    def _rouse(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._wake.send(b"")

    def _talk(self) -> None:
        """The thread: send what is to be sent, take in what comes, call those that are away."""
        poller = self._links.poller
        poller.register(self._wake_end, zmq.POLLIN)
        end = _closed()
        try:
            while not self._closing:
                ready = dict(poller.poll(self._pause_ms()))
                with self._changed:
                    if self._wake_end in ready:
                        self._wake_end.recv()
                    self._is_awake = True  # what is scheduled from here on is seen below
                    if self._connects_anew:  # before anything is read: what a connection says is of the old term
                        self._connects_anew = False
                        self._links.disconnect_all()
                    for link in self._links.with_news(ready):
                        self._take_in(link)
                    for link in self._links:
                        if link.call_at.expired:
                            self._call(link)
                    self._links.follow()
                    self._send_out()
                    while self._unwanted:
                        self._release([self._unwanted.popleft()])
                    self._look_for_workers()
                    self._look_for_servers()
                    self._is_awake = False
                    self._changed.notify_all()
        except Exception as fault:  # of Stratagem's
            end = fault
        finally:
            self._give_up(end)
            self._links.disconnect_all()

    def _give_up(self, error: BaseException) -> None:
        """Tell whoever waits, now or later, that this thread has ended: nothing will run any more."""
        with self._changed:
            self._is_awake = True  # nobody listens
            self._handle(Begun())
            self._handle(Broken(error))
            self._changed.notify_all()

    def _pause_ms(self) -> int:
        return 0 if self._outbox else int(self._links.seconds_to_call * 1000) + 1

    def _call(self, link: Link) -> None:
        """Say hello, on a new connection where there is none."""
        self._links.connect(link)
        self._trying(link, lambda channel: channel.send(Message("hello", {"term": self._term})))

    def _take_in(self, link: Link) -> None:
        def take(channel: Channel) -> None:
            while (message := channel.poll()) is not None:
                self._understand(link, message)

        self._trying(link, take)

    def _trying(self, link: Link, use: Callable[[Channel], Any]) -> None:
        """Use the connection to a task; if it turns out that the task is lost, take note."""
        assert link.channel is not None
        try:
            use(link.channel)
        except (UnavailableError, MessageError) as error:
            if link.role is Role.PS:
                self._commits.ask(link.index, None)
            was_up = link.is_up
            self._links.disconnect(link, is_lost=True)
            if was_up:
                self._lose(link, error)

    def _lose(self, link: Link, error: BaseException) -> None:
        if link.role is Role.PS:
            self._handle(Broken(error))
            return
        announce(f"{link.name} was lost; what it was doing runs again elsewhere.")
        self._alone_since = Deadline(self._patience_seconds, self._clock)
        self._handle(WorkerLost(link.index))

    def _understand(self, link: Link, message: Message) -> None:
        closure = link.sent.pop(message.id, None)
        if closure is not None:
            self._end(link, closure, message)
        elif link.role is Role.PS and self._commits.is_answer(link.index, message.id):
            self._applied(link, message)
        elif message.kind != ERROR:  # it has answered the hello
            if link.role is Role.PS:
                self._links.hear(message.fields.get("workers", ()))
            elif not link.is_up:
                if link.has_moved:
                    announce(f"{link.name} is at {link.address} now.")
                self._handle(WorkerUp(link.index))
            link.is_up = True

    def _end(self, link: Link, closure: int, message: Message) -> None:
        receiver = self._end_job(closure)
        try:
            value = put_together(raise_if_error(message).fields.get("value"), message.arrays)
        except Exception as error:
            if "traceback" in message.fields:
                error.add_note(f"On {link.name}:\n{message.fields['traceback']}")
            receiver.fail(error)
            self._handle(Failed(link.index, closure, error))
            if isinstance(error, UnavailableError):
                self._handle(Broken(error))
        else:
            receiver.finish(value)
            self._handle(Finished(link.index, closure, message.fields.get("contribution")))

    def _applied(self, link: Link, message: Message) -> None:
        """A server has applied the round, or could not: then the others have, and training cannot go on."""
        try:
            raise_if_error(message)
        except Exception as error:
            error.add_note(f"On {link.name}, which was to apply a round.")
            self._handle(Broken(error))
        else:
            if self._commits.end(link.index):
                self._handle(Committed())

    def _send_out(self) -> None:
        while self._outbox:
            worker, closure = self._outbox.popleft()
            link = self._links[Role.WORKER, worker]
            if link.channel is None or closure not in self.dispatch.in_flight.get(worker, ()):
                continue  # lost in the meantime: the closure is queued again
            self._trying(link, functools.partial(self._send, link, closure))
        for server, message in self._commits.to_ask:
            link = self._links[Role.PS, server]
            if link.channel is not None:
                self._trying(link, functools.partial(self._ask_to_apply, server, message))

    def _ask_to_apply(self, server: int, message: Message, channel: Channel) -> None:
        self._commits.ask(server, channel.send(message))

    def _send(self, link: Link, closure: int, channel: Channel) -> None:
        job = self._jobs[closure]
        fresh = self._shared.missing(job.needs, link.known)
        rounds = self.dispatch.rounds
        fields = {
            "term": self._term,
            "fresh": [(number, self._shared[number].to_call) for number in fresh],
            "forget": link.forget,
            "round": None if rounds is None else rounds.round_of(closure),
        }
        data = [job.payload, *(self._shared[number].data for number in fresh)]
        link.sent[channel.send(Message("run", fields, [pickled(each) for each in data]))] = closure
        link.known.update(fresh)
        link.forget = []

    def _look_for_workers(self) -> None:
        """Give up when there has been no worker for too long, and something waits for one."""
        if self.dispatch.in_flight or not self.dispatch.queued or not self._alone_since.expired:
            return
        away = ", ".join(link.name for link in self._links if link.role is Role.WORKER)
        error = UnavailableError(
            f"No worker could be reached for {self._patience_seconds:g} s; expected: {away}.",
            "Scheduled functions would wait for ever.",
            "Start the workers: the same program, with their own task in TF_CONFIG. See the end of their output.",
        )
        self._handle(Forsaken(error))
        self._alone_since = Deadline(self._patience_seconds, self._clock)

    def _look_for_servers(self) -> None:
        """Give up when they have not applied a round in time."""
        if (error := self._commits.failure) is not None:
            self._handle(Broken(error))


def _closed() -> UsageError:
    return UsageError(
        "The strategy was closed, by strategy.close() or the end of the program.",
        "Scheduled functions that have not run never will: the cluster has ended.",
        "Call coordinator.join() before strategy.close(); to go on, make a new strategy, coordinator and model.",
    )
