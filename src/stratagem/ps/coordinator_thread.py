"""The thread of the chief that talks to all workers and parameter servers: the I/O around `Dispatch`."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import zmq

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError, UsageError
from stratagem.core.log import announce
from stratagem.ps.dispatch import (
    Begun,
    Broken,
    Commit,
    Committed,
    Dispatch,
    Event,
    Failed,
    Finished,
    Forsaken,
    Freed,
    GaveUp,
    Send,
    WorkerLost,
    WorkerUp,
)
from stratagem.ps.links import Link, Links
from stratagem.ps.results import put_together
from stratagem.ps.shared import missing
from stratagem.ps.synchronous.commits import Commits
from stratagem.ps.work import Work
from stratagem.transport.channel import Channel, raise_if_error
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import ERROR, Message, MessageError

PATIENCE_SECONDS: Final = 300.0
"""Seconds to wait for workers, the first or lost ones, when there are too few."""

END_SECONDS: Final = 5.0
"""Seconds for which functions run on after another has failed. Steps come to their end; what is longer is given up."""


class Workers(Work):
    """Runs closures on workers.

    Args:
        workers: Their addresses, by index.
        servers: Addresses of the parameter servers.
        keys: The keys of the chief, or None.
        dispatch: Says which closure runs where, and when.
        patience: How long to wait when there are too few workers for it.
        clock: Where time comes from.
    """

    def __init__(
        self,
        workers: Sequence[str],
        servers: Sequence[str],
        keys: Keys | None = None,
        *,
        dispatch: Dispatch | None = None,
        patience: float = PATIENCE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(dispatch or Dispatch())
        self._clock = clock or Clock()
        self.worker_count = len(workers)
        self._term = ""
        self._connects_anew = False
        self._outbox: deque[Send] = deque()
        self._commits = Commits(self._term, range(len(servers)), self._clock)
        self._links = Links(workers, servers, keys, self._clock)
        self._patience = Deadline(patience, self._clock)
        """Until when there may be too few workers; of interest while there are."""
        self._context = zmq.Context()
        self._wake_end = self._context.socket(zmq.PAIR)
        self._wake_end.bind("inproc://wake")
        self._wake = self._context.socket(zmq.PAIR)
        self._wake.connect("inproc://wake")
        self._is_awake = False
        self._closing = False
        self._patience_for_running: Deadline | None = None
        """When closures in flight are given up, once another one has failed."""
        self._told_at_end: Exception = UsageError(
            "The strategy was closed, by strategy.close() or the end of the program.",
            "The cluster has ended, so the scheduled functions that have not run yet will never run.",
            "Call coordinator.join() before strategy.close(). To continue, make a new strategy, coordinator and model.",
        )
        self._thread = threading.Thread(target=self._talk, name="coordinator", daemon=True)
        self._thread.start()

    def begin(self, term: str) -> None:
        """Begin a term (`server.service`): give up what is under way, and let workers, too, begin with nothing."""
        with self._changed:
            if not self._thread.is_alive():  # nothing would ever run, and nobody would be told
                raise self._told_at_end
            self._term = term
            self._handle(Begun())
            self._patience = Deadline(self._patience.seconds, self._clock)  # no worker is up in a new term
            self.has_told_of_loss = False
            servers = [link.index for link in self._links if link.role is Role.PS]
            self._commits = Commits(term, servers, self._clock)
            self._connects_anew = True  # sockets belong to the thread
            self._rouse()

    @property
    def addresses(self) -> dict[tuple[Role, int], str]:
        """Where each task is called."""
        return self._links.addresses

    def counts(self) -> dict[str, int]:
        """Return the counts of the work, and bytes sent and received."""
        with self._changed:
            channels = [link.channel for link in self._links if link.channel is not None]
            return {
                **super().counts(),
                "bytes sent": sum(channel.sent_bytes for channel in channels),
                "bytes received": sum(channel.received_bytes for channel in channels),
            }

    def close(self, because: Exception | None = None) -> None:
        """End the thread; who waits for closures that have not run is told. Harmless when closed.

        Args:
            because: What they are told; None for the end of the strategy.
        """
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._told_at_end = because or self._told_at_end
            self._rouse()
        self._thread.join()
        self._context.destroy(linger=0)

    # The lock is held in all that follows but `_talk` and `_give_up`.

    def _handle(self, event: Event) -> None:
        super()._handle(event)
        if not self.dispatch.rounds.is_committing:
            self._commits.give_up()  # applied, or broken

    def _carry_out(self, instruction: Send | Commit) -> None:
        if isinstance(instruction, Commit):
            self._commits.begin(instruction.round, instruction.contributions)
        else:
            self._outbox.append(instruction)
        self._rouse()

    def _rouse(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._wake.send(b"")

    def _talk(self) -> None:
        """The thread: send what is to be sent, take in what comes, call those that are away."""
        poller = self._links.poller
        poller.register(self._wake_end, zmq.POLLIN)
        try:
            while not self._closing:
                ready = dict(poller.poll(0 if self._outbox else int(self._seconds_to_wait() * 1000) + 1))
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
                    self._give_up_what_runs_on()
                    self._look_for_workers()
                    if (error := self._commits.failure) is not None:
                        self._handle(Broken(error))
                    self._is_awake = False
                    self._changed.notify_all()
        except Exception as fault:  # of Stratagem's
            self._told_at_end = fault
        finally:
            self._give_up(self._told_at_end)
            self._links.disconnect_all()

    def _give_up(self, error: BaseException) -> None:
        """Tell whoever waits, now or later, that this thread has ended: nothing will run any more."""
        with self._changed:
            self._is_awake = True  # nobody listens
            self._handle(Begun())
            self._handle(Broken(error))
            self._changed.notify_all()

    @contextlib.contextmanager
    def _talking_to(self, link: Link) -> Iterator[Channel]:
        """Use the connection to a task; if it turns out that the task is lost, take note."""
        assert link.channel is not None
        try:
            yield link.channel
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
        had_enough = self.dispatch.has_enough_workers
        self._handle(WorkerLost(link.index))
        if had_enough and not self.dispatch.has_enough_workers:
            self._patience = Deadline(self._patience.seconds, self._clock)
            if (least := self.dispatch.least) > 1:
                announce(
                    f"Workers left: {len(self.dispatch.in_flight)}. Functions begin again when there are {least}; "
                    f"after {self._patience.seconds:g} s they raise UnavailableError."
                )

    def _call(self, link: Link) -> None:
        """Say hello, on a new connection where there is none."""
        self._links.connect(link)
        with self._talking_to(link) as channel:
            channel.send(Message("hello", {"term": self._term}))

    def _take_in(self, link: Link) -> None:
        with self._talking_to(link) as channel:
            while (message := channel.poll()) is not None:
                self._understand(link, message)

    def _understand(self, link: Link, message: Message) -> None:
        closure = link.sent.pop(message.id, None)
        given_up = link.given_up.pop(message.id, None)
        if closure is not None:
            self._end(link, closure, message)
        elif given_up is not None:
            if given_up in link.sent.values() and message.kind != ERROR and message.fields["given_up"]:
                self._handle(GaveUp(link.index, given_up))
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
        if closure in self.dispatch.given_up:
            self._handle(Freed(link.index, closure))
            return
        result = self._jobs.pop(closure).result
        try:
            value = put_together(raise_if_error(message).fields.get("value"), message.arrays)
        except Exception as error:
            if "traceback" in message.fields:
                error.add_note(f"On {link.name}:\n{message.fields['traceback']}")
            result.set_exception(error)
            self._handle(Failed(link.index, closure, error))
            if isinstance(error, UnavailableError):
                self._handle(Broken(error))
        else:
            result.set_result(value)
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
            send = self._outbox.popleft()
            link = self._links[Role.WORKER, send.worker]
            # A worker that was lost in the meantime has given the closure back.
            if link.channel is not None and self.dispatch.in_flight.get(send.worker) == send.closure:
                with self._talking_to(link) as channel:
                    self._send(link, send.closure, channel)
        for server, message in self._commits.to_ask:
            link = self._links[Role.PS, server]
            if link.channel is not None:
                with self._talking_to(link) as channel:
                    self._commits.ask(server, channel.send(message))

    def _send(self, link: Link, closure: int, channel: Channel) -> None:
        job = self._jobs[closure]
        fresh = sorted(missing(job.needs, link.known), key=lambda shared: shared.number)
        gone = [number for number in link.known if number not in self._shared]
        fields = {
            "term": self._term,
            "fresh": [(shared.number, shared.to_call) for shared in fresh],
            "forget": gone,
            "round": self.dispatch.rounds.round_of(closure),
        }
        data = [job.payload, *(shared.data for shared in fresh)]
        message = Message("run", fields, [np.frombuffer(each, np.uint8) for each in data])
        link.sent[channel.send(message)] = closure
        link.known.update(shared.number for shared in fresh)
        link.known.difference_update(gone)

    def _seconds_to_wait(self) -> float:
        """Return how long until something is to be done by itself."""
        running = self._patience_for_running
        # What was asked to be given up has its answer to wait for, and no moment.
        seconds = [] if running is None or running.expired else [running.remaining]
        return min([self._links.seconds_to_call, *seconds])

    def _give_up_what_runs_on(self) -> None:
        """Ask workers to give up closures that still run some seconds after another one failed: the program waits."""
        if self.dispatch.error is None or not self.dispatch.running:
            self._patience_for_running = None
            return
        if self._patience_for_running is None:
            self._patience_for_running = Deadline(END_SECONDS, self._clock)
        if not self._patience_for_running.expired:
            return
        for link in self._links:
            numbers = {closure: number for number, closure in link.sent.items()}
            for closure in numbers.keys() - link.given_up.values() - self.dispatch.given_up:
                announce(f"{link.name} gives up a function, {END_SECONDS:g} s after another one failed.")
                with self._talking_to(link) as channel:
                    message = Message("give up", {"term": self._term, "request": numbers[closure]})
                    link.given_up[channel.send(message)] = closure

    def _look_for_workers(self) -> None:
        """Give up when there have been too few workers for too long, and something waits for one."""
        if self.dispatch.has_enough_workers or not self.dispatch.queued or not self._patience.expired:
            return
        up, least = self.dispatch.in_flight, self.dispatch.least
        away = ", ".join(link.name for link in self._links if link.role is Role.WORKER and link.index not in up)
        found = f"{len(up)} of at least {least} workers" if least > 1 else "No worker"
        error = UnavailableError(
            f"{found} could be reached for {self._patience.seconds:g} s; expected: {away}.",
            "Start the workers: the same program, with their own task in TF_CONFIG. See the end of their output.",
        )
        self._handle(Forsaken(error))
        self._patience = Deadline(self._patience.seconds, self._clock)
