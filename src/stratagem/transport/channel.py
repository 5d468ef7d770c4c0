"""Channel: the side that asks. It has a connection to one task, which ends when the task ends."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from stratagem.core.clock import Deadline
from stratagem.core.errors import StratagemError, UnavailableError
from stratagem.transport.keys import Keys, Role
from stratagem.transport.memory import SharedMemory
from stratagem.transport.message import ERROR, Limits, Message, decode, encode
from stratagem.transport.server import SHARE

_HEARTBEAT_MS: Final = 2_000
_SILENCE_MS: Final = 20_000
"""How long a task may be silent on the network (its ZeroMQ thread answers also while Python is busy)."""

_LOST: Final = zmq.EVENT_DISCONNECTED
_REFUSED: Final = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_HUNG_UP: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""The other end closed the connection before both had shown their keys: so does one that cannot read ours."""

_LIMITS: Final = Limits()
"""What is accepted as an answer."""


@functools.cache
def _shared_context() -> zmq.Context:
    """Return the context of all channels of this process; made when it is first needed.

    A channel takes three sockets: with ZeroMQ's own limit, 1023, a chief of 200 tasks would meet "Too many open files".
    """
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
    return context


class Channel:
    """A connection to a task. If the task is lost, the channel is dead; make another one to try again.

    One thread at a time may use it.

    Args:
        task: The task, as messages name it.
        address: The address that it listens on.
        keys: The keys of this task, or None.
        holder: The holder of the other task's key (`keys`): nobody else can answer.
    """

    def __init__(self, task: str, address: str, *, keys: Keys | None = None, holder: str = Role.PS) -> None:
        self.task = task
        self.address = address
        self.received_bytes = self.sent_bytes = 0
        self._numbers = itertools.count(1)
        self._loss: str | None = None
        self._waiting = 0
        self._early: dict[int, Message] = {}
        self._memory: dict[str, SharedMemory] = {}
        self.socket = _shared_context().socket(zmq.DEALER)
        """Readable when an answer has come."""
        self.socket.linger = 0
        self.socket.ipv6 = True
        self.socket.maxmsgsize = _LIMITS.frame_bytes
        self.socket.heartbeat_ivl = _HEARTBEAT_MS
        self.socket.heartbeat_timeout = _SILENCE_MS
        self.socket.reconnect_ivl = 50
        self.socket.reconnect_ivl_max = 1000
        if keys is not None:
            self.socket.curve_secretkey = keys.secret
            self.socket.curve_publickey = keys.public[keys.holder]
            self.socket.curve_serverkey = keys.public[holder]
        self.monitor = self.socket.get_monitor_socket(_LOST | _REFUSED | _HUNG_UP)
        """Readable when something has happened to the connection; `check` then tells what."""
        self.socket.connect(f"tcp://{address}")
        self._either = zmq.Poller()
        self._either.register(self.socket, zmq.POLLIN)
        self._either.register(self.monitor, zmq.POLLIN)

    def close(self) -> None:
        """Close the connection. Messages that were not sent are dropped. It is harmless if the channel is closed."""
        if not self.socket.closed:
            self.socket.disable_monitor()
            self.monitor.close()
            self.socket.close()
            for memory in self._memory.values():
                memory.close()

    def send(self, message: Message) -> int:
        """Send a request; return the number that its answer will have. Do not wait for the answer.

        Raises:
            UnavailableError: The task was lost before, or takes no messages.
        """
        self.check()
        number = next(self._numbers)
        # Those that have no answer yet may still lie in the memory, or their answers.
        memory = None if self._waiting or self._early else next(iter(self._memory.values()), None)
        frames = encode(replace(message, id=number), memory)
        self._hand_over(frames)
        self._waiting += 1
        self.sent_bytes += _bytes(frames[0], message)
        return number

    def _hand_over(self, frames: Sequence[Any]) -> None:
        """Give ZeroMQ the frames of a message.

        It takes them at once, unless it has too many, or has given the connection up: its `send` would wait forever
        then, as a refusal may come between two looks at the connection.
        """
        deadline = Deadline(_SILENCE_MS / 1000)
        while True:
            with contextlib.suppress(zmq.Again):
                self.socket.send_multipart(frames, zmq.DONTWAIT, copy=False)  # pyzmq copies small ones: that costs less
                return
            if deadline.expired:
                raise self._unavailable(f"accepted no message for {deadline.seconds:g} s")
            poller = zmq.Poller()
            poller.register(self.socket, zmq.POLLOUT)
            poller.register(self.monitor, zmq.POLLIN)
            poller.poll(int(deadline.remaining * 1000) + 1)
            self.check()

    def share_memory(self, deadline: Deadline) -> None:
        """Put arrays in memory that both tasks share, if they run on one machine.

        Args:
            deadline: When to give up waiting for the task.

        Raises:
            UnavailableError: The task was lost, or did not answer in time.
        """
        memory = SharedMemory.make()
        if memory is None:
            return
        is_shared = False
        try:
            is_shared = self.receive(self.send(Message(SHARE, memory.whereabouts)), deadline).fields["shared"]
        finally:
            if is_shared:
                self._memory[memory.name] = memory
            else:
                memory.close()

    def poll(self) -> Message | None:
        """Return an answer that has come, or None. Its `id` is that of its request.

        Raises:
            UnavailableError: The task was lost.
        """
        if not _is_readable(self.socket):
            self.check()
            return None
        frames = self.socket.recv_multipart(copy=False)
        self._waiting -= 1
        message = decode(frames, _LIMITS, self._memory)
        self.received_bytes += _bytes(frames[0], message)
        return message

    def receive(self, number: int, deadline: Deadline) -> Message:
        """Wait for the answer to a request. Answers to older requests are dropped, those to newer ones are kept.

        Args:
            number: The number that `send` returned.
            deadline: When to give up.

        Raises:
            UnavailableError: The task was lost, or did not answer in time.
            Exception: The error that the task answered with: one of Stratagem's or a built-in one, by its name.
        """
        self._early = {early: message for early, message in self._early.items() if early >= number}
        while number not in self._early:
            message = self.poll()
            if message is not None and message.id >= number:
                self._early[message.id] = message
            elif message is None:
                if deadline.expired:
                    raise self._unavailable(f"did not answer within {deadline.seconds:g} s")
                self._either.poll(int(deadline.remaining * 1000) + 1)
        return raise_if_error(self._early.pop(number))

    def request(self, message: Message, seconds: float = 60.0) -> Message:
        """Send a request and wait for its answer.

        Args:
            message: The request.
            seconds: How long to wait.

        Raises:
            UnavailableError: The task was lost, or did not answer in time.
            Exception: The error that the task answered with.
        """
        return self.receive(self.send(message), Deadline(seconds))

    def check(self) -> None:
        """Look at what has happened to the connection.

        Raises:
            UnavailableError: The task was lost, or refuses the key of this one.
        """
        while self._loss is None and _is_readable(self.monitor):
            event = recv_monitor_message(self.monitor)["event"]
            if event & _REFUSED:
                self._loss = "refused this task: it has keys of another run or another secret"
            elif event & _HUNG_UP:
                self._loss = "closed the connection at once: it ended, or has keys of another run or another secret"
            else:
                self._loss = "ended, or can no longer be reached"
        if self._loss is not None:
            raise self._unavailable(self._loss)

    def _unavailable(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"{self.task} at {self.address} {what}.",
            "Look at the end of its output. Start it or the whole cluster again, with the same secret in all tasks.",
        )


def _is_readable(socket: zmq.Socket) -> bool:
    """Whether a message has come; a poller would be made for the question (10 us)."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def _bytes(header: Any, message: Message) -> int:
    return len(header) + sum(np.asarray(array).nbytes for array in message.arrays)


def raise_if_error(message: Message) -> Message:
    """Return an answer; raise the error if the answer is one.

    The error is of the class that was raised, if this process has a module with such a class. Otherwise it is a
    `StratagemError`.
    """
    if message.kind != ERROR:
        return message
    module, name, text = (str(message.fields.get(field)) for field in ("module", "class", "text"))
    kind = getattr(sys.modules.get(module), name, None)
    error: Exception = StratagemError(f"{name}: {text}")
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(Exception):  # a class that cannot be made of a text
            error = kind(text)
    raise error
