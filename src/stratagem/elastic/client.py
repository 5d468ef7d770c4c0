"""A member's connection to the coordinator of elastic training.

A thread listens to it, and says every fifth of a second that this process lives. A step costs one lock and no message.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final

from stratagem.cluster.lifeline import notice_dead_host
from stratagem.core import exits
from stratagem.core.clock import Deadline
from stratagem.core.errors import PeerError
from stratagem.core.hosts import own_end
from stratagem.core.log import logger
from stratagem.core.progress import Phase, Progress
from stratagem.core.progress import progress as own_progress
from stratagem.elastic.events import Beat, Closed, End, Failed, Form, Leaving, Order, Prepared, Report, Stop
from stratagem.elastic.gate import Gate
from stratagem.elastic.hello import JoinHello
from stratagem.elastic.limits import BEAT_SECONDS
from stratagem.elastic.reaching import reach
from stratagem.elastic.wire import Wire, read_order, write_report
from stratagem.elastic.world import Bounds, WorldChangedError

SEND_SECONDS: Final = 10.0
"""How long the coordinator may take to read a report; after it, it counts as gone."""

PATIENCE_SECONDS: Final = 4000.0
"""Longest wait for an order that the coordinator owes. Its own limits are shorter."""

_LONG: Final = ("evaluate", "predict")
"""Methods of a model in which a process comes to no step that the coordinator counts."""

ANSWER_SECONDS: Final = 30.0
"""How much longer than asked for a wait in the store may take, before the coordinator counts as stuck."""

FAILED_SECONDS: Final = 3.0
"""How long a process that fails waits until the coordinator has heard of it."""


def join(
    address: str,
    hello: JoinHello,
    secret: bytes,
    deadline: Deadline,
    *,
    on_order: Callable[[Order], object] = lambda order: None,
    progress: Progress = own_progress,
    beat_seconds: float = BEAT_SECONDS,
) -> Membership:
    """Join a run of elastic training.

    Connections that fail are tried again until the deadline: the coordinator may come later than its members.

    Args:
        address: Where the coordinator listens, as host:port.
        hello: What this process says of itself.
        secret: The secret of the cluster.
        deadline: When to give up.
        on_order: Called with each order at once, in the thread that listens, so that it can cut what is in flight.
        progress: What this process is doing.
        beat_seconds: How often it says that it lives.

    Raises:
        StartupError: Nobody answered in time.
        ClusterError: The coordinator does not know the secret.
        PeerError: The coordinator refuses this process.
    """
    name = f"Process {hello.pid} of host {hello.host}"
    connection, wire, answer = reach(address, name, hello.encode(), secret, deadline)
    bounds = Bounds(answer["least"], answer["wanted"], answer["most"])
    return Membership(answer["member"], bounds, connection, wire, on_order, progress, beat_seconds)


class Membership:
    """This process as a member. `join` makes it.

    A process that trains asks `may_begin` before each step, and says `completed` behind it. Where it may not, it takes
    back what is in flight, says `stopped`, and waits for the `next_order`: `Form`, after which it says `formed` and
    waits for `Go`; `Go` at once, where the world goes on after all; or `End`. No order is left out, so one may come out
    that a later one has overtaken: then no step may be begun, and waits in its world raise `WorldChangedError`.

    Attributes:
        number: The number of this member.
        bounds: How many workers there may be.
        gate: Which steps it may begin, and what it holds.
        is_busy: Whether this process does what takes its time, and will come to the step that others wait for; it is
            also taken to do so while it compiles, evaluates or predicts.
    """

    def __init__(
        self,
        number: int,
        bounds: Bounds,
        connection: socket.socket,
        wire: Wire,
        on_order: Callable[[Order], object],
        progress: Progress,
        beat_seconds: float,
    ) -> None:
        self.number = number
        self.bounds = bounds
        self.gate = Gate(number)
        self.is_busy = False
        self._connection, self._wire = connection, wire
        self._own_host = own_end(connection)
        self._on_order, self._progress, self._beat_seconds = on_order, progress, beat_seconds
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._leaves: SimpleQueue[float] = SimpleQueue()
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._asked: dict[int, tuple[int, Future[Any]]] = {}
        self._num_asked = 0
        self._over: dict[int, str] = {}
        self._end: End | None = None
        self._is_closed = False
        self._has_ended = threading.Event()
        connection.settimeout(SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_dead_host(connection)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        os.register_at_fork(after_in_child=self._forget)
        self._thread = threading.Thread(target=self._listen, name="stratagem-elastic", daemon=True)
        self._thread.start()

    # Steps -------------------------------------------------------------------------------------------

    @property
    def own_host(self) -> str:
        """The address of this host by which it has reached the coordinator."""
        return self._own_host

    @property
    def goes(self) -> bool:
        """Whether the world of this process runs."""
        with self._changed:
            return self.gate.goes

    def may_begin(self) -> bool:
        """Whether the next step is to be done. If not, this process reports `stopped`.

        Raises:
            PeerError: The coordinator did not say which step is the last.
        """
        deadline = Deadline(PATIENCE_SECONDS)
        with self._changed:
            while (may := self.gate.may_begin()) is None:
                if not self._changed.wait(deadline.remaining) and deadline.expired:
                    raise self._owed("which step is the last", deadline.seconds)
            return may

    @property
    def ends_here(self) -> bool:
        """Whether the run ends behind the step that this process has just completed, so that it is to save now."""
        with self._changed:
            return self.gate.ends_here

    def completed(self) -> None:
        """Note that the step that was begun is completed: its result is in the state, or surely will be."""
        with self._changed:
            self.gate.complete()

    # Reports -----------------------------------------------------------------------------------------

    def prepared(self) -> None:
        """Report that this process, which is in no world, has run its program as far as it can without the others."""
        self._report(Prepared(self.number))

    def stopped(self) -> None:
        """Report that nothing is in flight any more, and which step was the last that is completed."""
        with self._changed:
            report = self.gate.stopped()
        self._report(report)

    def formed(self, world: int) -> None:
        """Report that this process is in the exchange of a world, and holds the state of its first step.

        Args:
            world: The number of the world.

        Raises:
            WorldChangedError: Another one has taken its place; its order is the next, or one of the next.
        """
        with self._changed:
            report = self.gate.formed(world)
        self._report(report)

    def finished(self) -> None:
        """Report that the program has come to its end. The order `End` follows when all have."""
        with self._changed:
            report = self.gate.finished()
        self._report(report)

    def closed(self) -> None:
        """Report that no other process can take part any more."""
        self._report(Closed(self.number))

    def leaves(self, seconds: float) -> None:
        """Report that this process must go, as its machine is wanted back. A signal handler may call it.

        Args:
            seconds: How long it still lives.
        """
        self._leaves.put(seconds)
        self._wake()

    def failed(self, text: str) -> None:
        """Report an exception of the program, and return when the coordinator has heard of it.

        Args:
            text: What the others show.
        """
        self._report(Failed(self.number, text))
        self._has_ended.wait(FAILED_SECONDS)

    # Orders ------------------------------------------------------------------------------------------

    def next_order(self, seconds: float | None = None) -> Order:
        """Return the next order, in the order in which they came; wait for it.

        Args:
            seconds: How long to wait; None as long as the coordinator is there, as a spare must. When it is gone, the
                order is `End`.

        Raises:
            PeerError: None came in time.
        """
        try:
            return self._orders.get(timeout=seconds)
        except Empty:
            raise self._owed("what is to be done", seconds or 0.0) from None

    @property
    def end(self) -> End | None:
        """The order to end, once it has come. That the coordinator is gone counts as one."""
        return self._end

    def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        self._wake()
        self._thread.join(10.0)

    def _owed(self, what: str, seconds: float) -> PeerError:
        return PeerError(
            f"Member {self.number} waited {seconds:g} s; the coordinator did not say {what}.",
            "The launcher is stopped, or its machine is.",
            "Look at the launcher, and start the run again.",
        )

    # The store of a world ----------------------------------------------------------------------------

    def ask(self, world: int, message: dict[str, Any], seconds: float, late: Callable[[str], Exception]) -> Any:
        """Return what the store of a world answers.

        Args:
            world: The number of the world.
            message: What is asked for.
            seconds: How long the store may take.
            late: Makes the error of an answer that did not come in time, or of one that cannot be given.

        Raises:
            WorldChangedError: The world has ended.
        """
        future: Future[Any] = Future()
        with self._changed:
            if world in self._over or self._end is not None or self._is_closed:
                raise WorldChangedError(world, self._over.get(world) or self._why_ended())
            self._num_asked += 1
            number = self._num_asked
            self._asked[number] = (world, future)
        try:
            self._send({"ask": number, "world": world, "seconds": seconds, **message})
            value, error = future.result(seconds + ANSWER_SECONDS)
        except TimeoutError:
            raise late("DEADLINE_EXCEEDED: the coordinator of elastic training did not answer") from None
        finally:
            with self._changed:
                self._asked.pop(number, None)
        if error is None:
            return value
        if error[0] == "over":
            raise WorldChangedError(world, error[1])
        raise late(error[1])

    # The thread --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        reason = "the coordinator of elastic training is gone (its launcher was killed, or the network is down)"
        try:
            self._take(b"")
            self._follow()
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.debug("The connection to the coordinator has ended: %r", error)
            reason = f"{reason}: {error}"
        finally:
            self._connection.close()
            if self._end is None and not self._is_closed:
                self._obey(End((self.number,), exits.PEER_LOST, reason))
            self._give_up_waits()
            self._woken.close()
            self._waker.close()

    def _follow(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            beat = Deadline(0.0)
            while not self._is_closed:
                if beat.expired:
                    self._beat()
                    beat = Deadline(self._beat_seconds)
                for key, _ in selector.select(beat.remaining):
                    if key.fileobj is self._connection:
                        data = self._connection.recv(1 << 20)
                        if not data:
                            return
                        self._take(data)
                    else:
                        self._woken.recv(64)
                while not self._leaves.empty():
                    self._report(Leaving(self.number, self._leaves.get()))

    def _beat(self) -> None:
        """Say that this process lives, unless the coordinator does not read: it is to be told news then, not this."""
        poll = select.poll()
        poll.register(self._connection, select.POLLOUT)
        if poll.poll(0):
            with self._changed:
                step = self.gate.completed
            mark = self._progress.mark
            is_busy = self.is_busy or mark.phase is Phase.COMPILING or mark.called in _LONG
            self._send(write_report(Beat(self.number, step, is_busy)))

    def _take(self, data: bytes) -> None:
        for message in self._wire.feed(data):
            if "answer" in message:
                with self._changed:
                    _, future = self._asked.pop(message["answer"], (0, None))
                if future is not None:
                    future.set_result((message["value"], message["error"]))
            else:
                self._obey(read_order(message, self.number))

    def _obey(self, order: Order) -> None:
        """Take an order in: first what must not wait."""
        with self._changed:
            before = self.gate.world
            answer = self.gate.hear(order)
            if isinstance(order, End):
                self._end = order
            elif isinstance(order, Form) and before:
                self._over.setdefault(before, f"world {order.world.number} takes its place")
            elif isinstance(order, Stop) and order.cut:
                self._over[order.world] = order.reason
            self._changed.notify_all()
        if answer is not None:
            self._send(write_report(answer))
        if not isinstance(order, Stop) or order.cut:
            self._give_up_waits()
        try:
            self._on_order(order)
        except Exception:  # of who uses this; the thread must hear what follows all the same
            logger.exception("An order of the coordinator could not be followed: %r", order)
        self._orders.put(order)
        if isinstance(order, End):
            self._has_ended.set()

    def _give_up_waits(self) -> None:
        """End all waits within worlds that are over."""
        with self._changed:
            over = {
                number: (future, self._over.get(world) or self._why_ended())
                for number, (world, future) in self._asked.items()
                if world in self._over or self._end is not None or self._is_closed
            }
            for number in over:
                del self._asked[number]
        for future, reason in over.values():
            future.set_result((None, ("over", reason)))

    def _why_ended(self) -> str:
        return self._end.reason if self._end is not None else "this process has left"

    def _wake(self) -> None:
        try:
            self._waker.send(b"!")
        except OSError:  # full, or closed as the thread has ended
            pass

    def _report(self, report: Report) -> None:
        self._send(write_report(report))

    def _send(self, message: dict[str, Any]) -> None:
        """Send a message. That the coordinator is gone is heard as an order to end, not here."""
        try:
            with self._sending:
                self._connection.sendall(self._wire.seal(message))
        except OSError as error:
            logger.debug("The coordinator could not be told %s: %s", message, error)

    def _forget(self) -> None:
        """In a forked child: it is no member, and must not keep the connection open when its parent dies."""
        self._is_closed = True
        self._connection.close()
