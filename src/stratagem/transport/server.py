"""Server of messages: the side that answers. One thread takes requests and sends the answers."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from stratagem.core.errors import RefusedError, StartupError, StratagemError
from stratagem.core.hosts import own_addresses
from stratagem.core.log import logger
from stratagem.transport.keys import Keys, Role, role_of
from stratagem.transport.memory import SharedMemory
from stratagem.transport.message import DONE, ERROR, Limits, Message, MessageError, decode, encode

SHARE: Final = "share"
"""The kind of a request to use memory of the task that asks (`SharedMemory.whereabouts`); the answer says `shared`."""

_ZAP: Final = "inproc://zeromq.zap.01"
_WAKE: Final = "inproc://answers"
_MOST_MEMORIES: Final = 1024
"""How many other tasks may share memory with this one; with the rest, arrays travel."""

_FAILED_HANDSHAKES: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


@dataclass(frozen=True, slots=True)
class Request:
    """A message that waits for an answer.

    Args:
        message: The message.
        holder: The holder of the key that it came with; None without keys, because then nobody knows.
        answer: Sends the answer, from any thread.
    """

    message: Message
    holder: str | None
    answer: Callable[[Message], None]

    @property
    def role(self) -> Role | None:
        """The role of the sender, as far as it is known."""
        return None if self.holder is None else role_of(self.holder)

    def require(self, *roles: Role) -> None:
        """Refuse the request unless one of these roles sent it. Without keys all are trusted.

        Raises:
            RefusedError: A task with another role sent it.
        """
        if self.role is not None and self.role not in roles:
            raise RefusedError(
                f"A {self.role} asked for {self.message.kind!r}; only a {' or '.join(roles)} may.",
                "Send the request from the right task. If your program did not send it, somebody else controls a task "
                "of this run.",
            )


@dataclass(eq=False)
class MessageServer:
    """Answers requests at an address until it is closed.

    A message that cannot be read is logged and dropped, never answered. If the handler raises an error, the error is
    the answer. It is also logged if it is not one of Stratagem's own.

    Args:
        address: `host:port` to listen at; port 0 takes a free one, which is then in this attribute.
        handler: Called in the thread of the server with each request. It answers at once, or keeps the request and
            answers from another thread.
        keys: The keys of this task, so that only tasks of the run can connect; None admits everybody who can reach the
            address (`stratagem.ps.own_keys` says when).
        limits: The limits for a message.

    Raises:
        StartupError: The address is taken, or is not an address of this machine.
    """

    address: str
    handler: Callable[[Request], None]
    _: KW_ONLY
    keys: Keys | None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self._memories: dict[str, SharedMemory] = {}
        self.refused: Counter[str] = Counter()
        """What was refused, by reason."""
        self._told: Counter[str] = Counter()
        self._context = zmq.Context()
        self._context.linger = 0
        self._wake = self._context.socket(zmq.PULL)
        self._wake.bind(_WAKE)
        self._to_thread = self._context.socket(zmq.PUSH)
        self._to_thread.connect(_WAKE)
        self._sending = threading.Lock()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(_ZAP)
        self._router, self.address = self._listen(self.address)
        self._failures = self._router.get_monitor_socket(_FAILED_HANDSHAKES)
        self._thread = threading.Thread(target=self._serve, name=f"server at {self.address}", daemon=True)
        self._thread.start()

    def _listen(self, address: str) -> tuple[zmq.Socket, str]:
        router = self._context.socket(zmq.ROUTER)
        router.maxmsgsize = self.limits.frame_bytes
        router.ipv6 = True
        # Strangers that connect and say nothing are cut off (libzmq's default is 30 s, for each of them).
        router.handshake_ivl = 10_000
        if self.keys is not None:
            router.curve_server = True
            router.curve_secretkey = self.keys.secret
        host, _, port = address.rpartition(":")
        try:
            for endpoint in _endpoints(host.strip("[]")):
                router.bind(f"tcp://{endpoint}:{'*' if port == '0' else port}")
                port = router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise StartupError(
                f"This task cannot listen at {address}: {error.strerror}.",
                "End the program that uses the port, or correct the address in the cluster.",
            ) from None
        return router, f"{host}:{port}"

    def close(self) -> None:
        """Send the answers that wait, then end. It is harmless if the server is closed."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._send([b""])
            self._thread.join()

    def _send(self, frames: Sequence[Any]) -> None:
        """Send from any thread, through the one that owns the socket."""
        with self._sending:
            if not self._to_thread.closed:
                self._to_thread.send_multipart(frames, copy=False)

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (self._router, self._wake, self._zap, self._failures):
            poller.register(socket, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll())
                if self._zap in ready:
                    self._judge(self._zap.recv_multipart())
                if self._failures in ready:
                    self._look_at_failure(recv_monitor_message(self._failures))
                if self._wake in ready:
                    frames = self._wake.recv_multipart(copy=False)
                    if len(frames) == 1:
                        return
                    self._router.send_multipart(frames, copy=False)
                if self._router in ready:
                    self._take(self._router.recv_multipart(copy=False))
        finally:
            with self._sending:
                self._context.destroy(linger=500)

    def _look_at_failure(self, failure: Mapping[str, Any]) -> None:
        """Count a handshake that came to nothing; say so, unless the other end left first.

        An evaluator that looks whether anybody trains still connects and leaves; so does what watches over a host.
        """
        event = zmq.Event(failure["event"])
        left = event is zmq.Event.HANDSHAKE_FAILED_NO_DETAIL and failure["value"] in (errno.EPIPE, errno.ECONNRESET)
        if left:
            self.refused["handshake"] += 1
        else:
            self._refuse("handshake", f"a connection was refused ({event.name})")

    def _judge(self, request: list[bytes]) -> None:
        """Answer ZeroMQ's question whether a key may connect (https://rfc.zeromq.org/spec/27/)."""
        version, number, _, peer, _, mechanism = request[:6]
        has_key = mechanism == b"CURVE" and len(request) == 7
        holder = self.keys.holder_of(request[6]) if self.keys and has_key else None
        if holder is None:
            self._refuse("key", f"{peer.decode(errors='replace')} has a key that is not of this run")
        status = (b"200", b"OK", holder.encode()) if holder else (b"400", b"unknown key", b"")
        self._zap.send_multipart([version, number, *status, b""])

    def _take(self, frames: Sequence[zmq.Frame]) -> None:
        """Hand one request to the handler. Whatever comes, the server goes on."""
        sender = frames[0].bytes
        try:
            message = decode(frames[1:], self.limits, self._memories)
        except MessageError as error:
            self._refuse("message", str(error).splitlines()[0])
            return
        holder = str(frames[1].get("User-Id")) if self.keys is not None else None

        def answer(reply: Message) -> None:
            memory = None if message.memory is None else self._memories.get(message.memory)
            out = [sender, *encode(replace(reply, id=message.id), memory)]
            if threading.current_thread() is self._thread:
                self._router.send_multipart(out, copy=False)
            else:
                self._send(out)

        request = Request(message, holder, answer)
        try:
            if message.kind == SHARE:
                answer(Message(DONE, {"shared": self._share(message.fields)}))
            else:
                self.handler(request)
        except RefusedError as error:
            self._refuse("request", str(error).splitlines()[0])
            answer(error_message(error))
        except Exception as error:
            if not isinstance(error, StratagemError):
                logger.exception("%s: %r failed", self.address, message.kind)
            answer(error_message(error))

    def _share(self, fields: Mapping[str, Any]) -> bool:
        """Open memory of another task, and drop that of tasks that have ended; return whether it could be opened."""
        self._memories = {name: memory for name, memory in self._memories.items() if memory.has_owner}
        room = len(self._memories) < _MOST_MEMORIES
        memory = SharedMemory.open(fields.get("name"), fields.get("path")) if room else None
        if memory is not None:
            self._memories[memory.name] = memory
        return memory is not None

    def _refuse(self, reason: str, what: str) -> None:
        """Count what was refused; log the first, second, fourth ... of a kind: a flood must not fill a disk."""
        self.refused[reason] += 1
        self._told[reason] += 1
        count = self._told[reason]
        if count & (count - 1) == 0:
            logger.warning("%s: %s; refused (%d so far)", self.address, what, count)


def error_message(error: BaseException) -> Message:
    """Return the answer that reports an error."""
    kind = type(error)
    return Message(ERROR, {"module": kind.__module__, "class": kind.__name__, "text": str(error)})


def _endpoints(host: str) -> list[str]:
    """Return what ZeroMQ binds, which knows no names: the addresses of the host that are this machine's, or all."""
    return [f"[{address}]" if ":" in address else address for address in own_addresses(host)] or ["*"]
