"""The I/O shell round `Dispatch`: one thread that talks to all workers and parameter servers."""

from __future__ import annotations

import functools
import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import zmq

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError, explain
from stratagem.core.log import announce
from stratagem.ps.dispatch import (
    Abort,
    Broken,
    Dispatch,
    Event,
    Failed,
    Finished,
    Raised,
    Scheduled,
    WorkerLost,
    WorkerUp,
)
from stratagem.ps.nest import put_together
from stratagem.ps.service import pickled
from stratagem.transport.channel import Channel, raise_if_error
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import Message, MessageError
from stratagem.transport.server import ERROR

MOST_QUEUED: Final = 1 << 16
"""How many functions may wait for workers; `schedule` then waits too. (TensorFlow's bound is four times that.)"""

_HELLO_SECONDS: Final = 5.0
"""How often the chief says that it is still there."""

_RETRY_SECONDS: Final = 0.2
"""How long to wait before a lost task is called again."""


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


@dataclass(slots=True)
class Shared:
    """A value that workers hold.

    Args:
        data: Pickled.
        to_call: Whether the value is what the pickled function returns.
        needs: Numbers of shared values that it refers to.
        uses: How many closures and shared values refer to it, and one while its owner wants it.
    """

    data: bytes
    to_call: bool
    needs: frozenset[int] = frozenset()
    uses: int = 1


@dataclass(slots=True)
class Link:
    """The connection to one task, and what it has been sent.

    Args:
        role: Worker or parameter server.
        index: Which.
        channel: The connection; None between two.
        is_up: Whether it has answered.
        call_at: When to say hello, or to try again.
        sent: Closures by the numbers of their requests.
        known: Numbers of the shared values that it has.
        forget: Numbers of those that it need not keep.
    """

    role: Role
    index: int
    call_at: Deadline
    channel: Channel | None = None
    is_up: bool = False
    sent: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    forget: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The task, as messages name it."""
        return f"{self.role} {self.index}"


class Crew:
    """Runs closures on workers.

    Args:
        workers: Their addresses, by index.
        servers: Addresses of the parameter servers.
        keys: The keys of the chief, or None.
        depth: How many closures a worker may have at once.
        patience_seconds: How long to wait for the first worker, or for one to come back, when there is none.
        clock: Where time comes from.
    """

    def __init__(
        self,
        workers: Sequence[str],
        servers: Sequence[str],
        keys: Keys | None = None,
        *,
        depth: int = 1,
        patience_seconds: float = 300.0,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._keys = keys
        self._patience_seconds = patience_seconds
        self.worker_count = len(workers)
        self.dispatch = Dispatch(depth)
        self._changed = threading.Condition()
        """Held whenever something is looked at or changed; notified when somebody may be waiting for it."""
        self._chief = uuid.uuid4().hex
        self._jobs: dict[int, Job] = {}
        self._shared: dict[int, Shared] = {}
        self._numbers = itertools.count()
        self._outbox: deque[tuple[int, int]] = deque()
        self._unwanted: deque[int] = deque()
        self._addresses = {(Role.WORKER, i): address for i, address in enumerate(workers)}
        self._addresses |= {(Role.PS, i): address for i, address in enumerate(servers)}
        self._links = {key: Link(*key, Deadline(0.0, self._clock)) for key in self._addresses}
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
            self._shared[number] = Shared(data, to_call, needs)
            self._use(needs)
            return number

    def forget(self, number: int) -> None:
        """Let workers drop a shared value, once no closure refers to it. Any thread may call it at any moment."""
        self._unwanted.append(number)

    def _use(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._shared[number].uses += 1

    def _release(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            shared = self._shared[number]
            shared.uses -= 1
            if not shared.uses:
                del self._shared[number]
                self._release(shared.needs)
                for link in self._links.values():
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
            self._use(job.needs)
            self._handle(Scheduled(number))

    def join(self) -> None:
        """Wait until every closure has run.

        Raises:
            Exception: The error of a closure; nothing is left running.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.dispatch.is_idle)
            self._raise_if_due()

    def done(self) -> bool:
        """Return whether every closure has run; raise the error of one."""
        with self._changed:
            self._raise_if_due()
            return self.dispatch.is_idle

    def wait_for(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something a receiver was told holds.

        Args:
            holds: Looks at it.
            seconds: How long to wait; None until the cluster says that it will not come.
        """
        with self._changed:
            return self._changed.wait_for(holds, seconds)

    def counts(self) -> dict[str, int]:
        """Return how many closures are queued and in flight, workers are up, and what has happened so far."""
        with self._changed:
            links = [link.channel for link in self._links.values() if link.channel is not None]
            return {
                "queued": len(self.dispatch.queued),
                "in flight": self.dispatch.running,
                "workers up": len(self.dispatch.in_flight),
                **dict.fromkeys(("scheduled", "finished", "failed", "aborted", "retried", "workers lost"), 0),
                **self.dispatch.counts,
                "bytes sent": sum(channel.sent_bytes for channel in links),
                "bytes received": sum(channel.received_bytes for channel in links),
            }

    def close(self) -> None:
        """End the thread; closures that have not run never will. Harmless when closed."""
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
        raise error

    def _handle(self, event: Event) -> None:
        """Let the machine react, and do what it says. The lock is held."""
        for instruction in self.dispatch.handle(event):
            if isinstance(instruction, Abort):
                self._end_job(instruction.closure).abort()
            else:
                self._outbox.append((instruction.worker, instruction.closure))
        if self._outbox:
            self._rouse()

    def _rouse(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._wake.send(b"")

    def _talk(self) -> None:
        """The thread: send what is to be sent, take in what comes, call those that are away."""
        poller = zmq.Poller()
        poller.register(self._wake_end, zmq.POLLIN)
        try:
            while not self._closing:
                ready = dict(poller.poll(self._pause_ms()))
                with self._changed:
                    if self._wake_end in ready:
                        self._wake_end.recv()
                    self._is_awake = True  # what is scheduled from here on is seen below
                    for link in self._links.values():
                        if link.channel is not None and (link.channel.socket in ready or link.channel.monitor in ready):
                            self._take_in(link, poller)
                        if link.call_at.expired:
                            self._call(link, poller)
                    self._send_out(poller)
                    while self._unwanted:
                        self._release([self._unwanted.popleft()])
                    self._look_for_workers()
                    self._is_awake = False
                    self._changed.notify_all()
        finally:
            for link in self._links.values():
                if link.channel is not None:
                    link.channel.close()

    def _pause_ms(self) -> int:
        return 0 if self._outbox else int(min(link.call_at.remaining for link in self._links.values()) * 1000) + 1

    def _call(self, link: Link, poller: zmq.Poller) -> None:
        """Say hello, on a new connection where there is none."""
        link.call_at = Deadline(_HELLO_SECONDS, self._clock)
        if link.channel is None:
            address = self._addresses[link.role, link.index]
            link.channel = Channel(link.name, address, keys=self._keys, role=link.role, clock=self._clock)
            poller.register(link.channel.socket, zmq.POLLIN)
            poller.register(link.channel.monitor, zmq.POLLIN)
        self._trying(link, poller, lambda channel: channel.send(Message("hello", {"chief": self._chief})))

    def _take_in(self, link: Link, poller: zmq.Poller) -> None:
        def take(channel: Channel) -> None:
            while (message := channel.poll()) is not None:
                self._understand(link, message)

        self._trying(link, poller, take)

    def _trying(self, link: Link, poller: zmq.Poller, use: Callable[[Channel], Any]) -> None:
        """Use the connection to a task; if it turns out that the task is lost, take note."""
        assert link.channel is not None
        try:
            use(link.channel)
        except (UnavailableError, MessageError) as error:
            poller.unregister(link.channel.socket)
            poller.unregister(link.channel.monitor)
            link.channel.close()
            was_up = link.is_up
            link.channel, link.is_up = None, False
            link.sent, link.known, link.forget = {}, set(), []
            link.call_at = Deadline(_RETRY_SECONDS, self._clock)
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
        elif message.kind != ERROR and not link.is_up:  # it has answered the hello
            link.is_up = True
            if link.role is Role.WORKER:
                self._handle(WorkerUp(link.index))

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
            self._handle(Finished(link.index, closure))

    def _send_out(self, poller: zmq.Poller) -> None:
        while self._outbox:
            worker, closure = self._outbox.popleft()
            link = self._links[Role.WORKER, worker]
            if link.channel is None or closure not in self.dispatch.in_flight.get(worker, ()):
                continue  # lost in the meantime: the closure is queued again
            self._trying(link, poller, functools.partial(self._send, link, closure))

    def _send(self, link: Link, closure: int, channel: Channel) -> None:
        job = self._jobs[closure]
        fresh = self._missing(job.needs, link.known)
        fields = {"fresh": [(number, self._shared[number].to_call) for number in fresh], "forget": link.forget}
        data = [job.payload, *(self._shared[number].data for number in fresh)]
        link.sent[channel.send(Message("run", fields, [pickled(each) for each in data]))] = closure
        link.known.update(fresh)
        link.forget = []

    def _missing(self, needs: frozenset[int], known: set[int]) -> list[int]:
        """Return the shared values to send, those that others refer to first."""
        missing: list[int] = []
        for number in sorted(needs - known):
            missing += [each for each in self._missing(self._shared[number].needs, known) if each not in missing]
            missing += [number] if number not in missing else []
        return missing

    def _look_for_workers(self) -> None:
        """Give up when there has been no worker for too long, and something waits for one."""
        if self.dispatch.in_flight or not self.dispatch.queued or not self._alone_since.expired:
            return
        away = ", ".join(link.name for link in self._links.values() if link.role is Role.WORKER)
        error = UnavailableError(
            explain(
                f"No worker could be reached for {self._patience_seconds:g} s; expected: {away}.",
                "Scheduled functions would wait for ever.",
                "Start the workers: the same program, with their own task in TF_CONFIG. See the end of their output.",
            )
        )
        self._handle(Broken(error))
        self._alone_since = Deadline(self._patience_seconds, self._clock)
