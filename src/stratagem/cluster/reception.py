"""The door of process 0, where tasks say hello: listeners, connections, and who is turned away.

Strangers may connect at any time. One that does not say a proven hello within seconds is turned away and counted, and
changes nothing else.
"""

from __future__ import annotations

import errno
import json
import selectors
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from stratagem.cluster.hello import Hello, Peer, check_fit, double_error, to_line
from stratagem.cluster.secret import Handshake, make_nonce, read_object
from stratagem.cluster.spec import Task, split_address
from stratagem.core import environment as env
from stratagem.core.clock import Deadline
from stratagem.core.errors import StartupError, StratagemError, name_some
from stratagem.core.hosts import bind_host
from stratagem.core.log import logger

MAX_STRANGERS: Final = 64
"""Connections kept at a time beyond the tasks expected; with more, the one that has been silent longest goes."""

HELLO_SECONDS: Final = 10.0
"""Longest time from a connection to its hello, which takes two messages."""

FAREWELL_SECONDS: Final = 10.0
"""Longest time to hand the answer to one task, and to wait for an answer that is due."""

BACKLOG: Final = 4096
"""Connections that the system keeps while process 0 has not come to them: with fewer, some of a thousand tasks that
start together would try again only after seconds."""

FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a process or a machine that has no descriptor or no memory left for a connection."""

PAUSE_SECONDS: Final = 0.5
"""How long nobody is let in where there is no room: whoever knocks would keep a processor busy."""

LONGEST_NONCE: Final = 64
"""Characters that a nonce of a guest may have; ours have 32."""


@dataclass(eq=False)
class Guest:
    """A connection to process 0, and how far it has come.

    Args:
        connection: The connection.
        address: Where it comes from.
        until: When its hello must be there.
        unread: The beginning of a line that has not come to its end.
        handshake: What both sides prove; None until the guest has sent its nonce.
        hello: What it said; None until then.
    """

    connection: socket.socket
    address: str
    until: Deadline
    unread: bytes = b""
    handshake: Handshake | None = None
    hello: Hello | None = None


class Reception:
    """The listening side: connections, and who said hello on which."""

    def __init__(self, own: Hello, secret: bytes) -> None:
        self._own = own
        self._secret = secret
        self._expected = dict.fromkeys(own.cluster.training_tasks[1:])
        # The same cluster as in our own hello, or a wrong one that is to be told so.
        self._longest_line = 4 * len(own.encode()) + 65536
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._guests: dict[socket.socket, Guest] = {}
        self._silent: dict[socket.socket, Guest] = {}  # those that have said no hello; who came first stands first
        self._arrived: dict[Task, Guest] = {}
        self._turned_away = 0
        self._pause: Deadline | None = None

    @property
    def is_complete(self) -> bool:
        return len(self._arrived) == len(self._expected)

    @property
    def missing(self) -> list[Task]:
        return [task for task in self._expected if task not in self._arrived]

    @property
    def named_missing(self) -> list[str]:
        return [f"{task} ({self._own.cluster.address_of(task)})" for task in self.missing]

    @property
    def peers(self) -> tuple[Peer, ...]:
        return (self._own.peer, *(_hello(self._arrived[task]).peer for task in self._expected))

    def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._let_in(listener)

    def _let_in(self, listener: socket.socket) -> None:
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self, seconds: float) -> None:
        """Handle what happens next, for at most `seconds`."""
        if self._pause is not None and self._pause.expired:
            self._pause = None
            for listener in self._listeners:
                self._let_in(listener)
        silent = self._longest_silent()
        soonest = [*([silent.until] if silent else []), *([self._pause] if self._pause else [])]
        for key, _ in self._selector.select(min([seconds, *(until.remaining for until in soonest)])):
            handle: Callable[[socket.socket], None] = key.data
            handle(cast(socket.socket, key.fileobj))
        while (silent := self._longest_silent()) is not None and silent.until.expired:
            self._turn_away(silent, f"said no hello within {silent.until.seconds:g} s")

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno in FULL:
                self._make_room()
            return  # gone again
        connection.setblocking(False)
        guest = Guest(connection, str(address[0]), Deadline(HELLO_SECONDS))
        self._guests[connection] = self._silent[connection] = guest
        self._selector.register(connection, selectors.EVENT_READ, self._read)
        if len(self._guests) > len(self._expected) + MAX_STRANGERS:
            self._make_room()

    def _longest_silent(self) -> Guest | None:
        """Return who has been here longest without a hello."""
        return next(iter(self._silent.values()), None)

    def _make_room(self) -> None:
        """Turn away who has been silent longest; where nobody is silent, let nobody in for a while."""
        silent = self._longest_silent()
        if silent is not None:
            self._turn_away(silent, "had said no hello when many others came")
            return
        if self._pause is None:
            logger.warning("%s has no descriptor left for a connection; it tries again.", self._own.peer.task)
            self._pause = Deadline(PAUSE_SECONDS)
            for listener in self._listeners:
                self._selector.unregister(listener)

    def _read(self, connection: socket.socket) -> None:
        guest = self._guests.get(connection)
        if guest is None:  # turned away a moment ago
            return
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        *lines, guest.unread = (guest.unread + data).split(b"\n")
        if not data:  # a task that died and came back closes its first connection
            self._drop(guest)
            return
        try:
            for line in lines:
                self._take(guest, line)
            if len(guest.unread) > self._longest_line:
                raise ValueError(f"sent {len(guest.unread)} bytes without the end of a line")
        except (ValueError, OSError) as error:  # a health check, a port scanner, a task with another secret
            self._turn_away(guest, str(error).partition("\n")[0])
            return
        if guest.hello is not None and connection in self._silent:
            del self._silent[connection]
            self._admit(guest, guest.hello)

    def _take(self, guest: Guest, line: bytes) -> None:
        """Take the next line of a guest; `ValueError` when it is none of ours."""
        if guest.hello is not None:
            raise ValueError("said more than its hello")
        if guest.handshake is not None:
            guest.hello = Hello.decode(guest.handshake.open("hello", line), self._own.cluster)
            return
        nonce = read_object(line).get("nonce")
        if not isinstance(nonce, str) or not 0 < len(nonce) <= LONGEST_NONCE:
            raise ValueError("sent no nonce")
        guest.handshake = Handshake(self._secret, nonce, make_nonce())
        guest.connection.send(to_line({"nonce": guest.handshake.host}) + guest.handshake.seal("host", ""))

    def _admit(self, guest: Guest, hello: Hello) -> None:
        """Take a task in, or tell it why not."""
        refusal = self._refusal(hello)
        if refusal is None:
            self._arrived[hello.peer.task] = guest
            return
        _send(guest, json.dumps(error_answer(refusal)))
        if self._secret:
            raise refusal
        logger.warning("%s is turned away, and may come back: %s", hello.peer, refusal)
        self._drop(guest)

    def _refusal(self, hello: Hello) -> StratagemError | None:
        """Return why a task cannot take part; None if it can."""
        try:
            check_fit(self._own, hello)
        except StratagemError as error:
            return error
        earlier = self._arrived.get(hello.peer.task)
        if earlier is not None and _is_gone(earlier.connection):
            self._drop(earlier)
            earlier = None
        if earlier is not None:
            return double_error(_hello(earlier).peer, hello.peer)
        return None if hello.peer.task in self._expected else double_error(self._own.peer, hello.peer)

    def _turn_away(self, guest: Guest, reason: str) -> None:
        self._turned_away += 1
        if self._turned_away == 1:  # one line, however many come
            logger.warning("%s: a connection from %s is closed: it %s.", self._own.peer.task, guest.address, reason)
        self._drop(guest)

    def _drop(self, guest: Guest) -> None:
        self._selector.unregister(guest.connection)
        del self._guests[guest.connection]
        self._silent.pop(guest.connection, None)
        if guest.hello is not None and self._arrived.get(guest.hello.peer.task) is guest:
            del self._arrived[guest.hello.peer.task]
        guest.connection.close()

    def missing_error(self, deadline: Deadline) -> StartupError:
        cluster, missing = self._own.cluster, self.missing
        own = self._own.peer.task
        strangers = f" {self._turned_away} other connection(s) were closed." if self._turned_away else ""
        return StartupError(
            f"{len(missing)} of {len(self._expected) + 1} tasks did not reach {own} within {deadline.seconds:g} s: "
            f"{name_some(self.named_missing)}.{strangers}",
            "Training needs every task of the cluster from the first step.",
            f"Look at the output of {name_some(map(str, missing))}; see that they can reach "
            f"{cluster.address_of(own)}. If they only start slowly, set {env.STARTUP_TIMEOUT} "
            "to more seconds.",
        )

    def dismiss(self, answer: Mapping[str, Any]) -> None:
        """Send the last word to every task that said hello."""
        text = json.dumps(answer)
        for guest in self._arrived.values():
            _send(guest, text)

    def keep_connections(self) -> dict[int, tuple[socket.socket, bytes]]:
        """Return the connections to the peers, by process index; closing them is the caller's business."""
        kept = {}
        for index, task in enumerate(self._expected, start=1):
            guest = self._guests.pop(self._arrived[task].connection)
            self._selector.unregister(guest.connection)
            kept[index] = (guest.connection, guest.unread)
        return kept

    def close_listeners(self) -> None:
        for listener in self._listeners:
            if self._pause is None:
                self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        self.close_listeners()
        for guest in list(self._guests.values()):
            self._drop(guest)
        self._selector.close()


def _hello(guest: Guest) -> Hello:
    assert guest.hello is not None
    return guest.hello


def _is_gone(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def listen(own: Hello) -> list[socket.socket]:
    """Return sockets that listen at the address of process 0.

    Args:
        own: What process 0 itself would say.

    Raises:
        StartupError: The port is busy, or no address of the host is this machine's.
    """
    task = own.peer.task
    host, port = split_address(own.cluster.address_of(task))
    bind = bind_host(host)
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for address in dict.fromkeys(info[4] for info in socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)):
        six = len(address) == 4
        family = socket.AF_INET6 if six else socket.AF_INET
        try:
            listeners.append(socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=bind == "::"))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:
                break
    if listeners and (failure is None or failure.errno != errno.EADDRINUSE):
        return listeners  # of the addresses of "localhost", one may not exist on this machine
    for listener in listeners:
        listener.close()
    reason = "the port is in use" if failure and failure.errno == errno.EADDRINUSE else str(failure)
    raise StartupError(
        f"{task} cannot listen on port {port} of {host}: {reason}.",
        f"End the program that holds port {port} (a task of an earlier run?), or give {task} another port "
        "in the cluster of every task.",
    )


def error_answer(error: StratagemError) -> dict[str, str]:
    """Return an error as the answer to a task that said hello."""
    return {"error": type(error).__name__, "message": str(error)}


def _send(guest: Guest, answer: str) -> None:
    """Send the last word to a guest; a task that is gone is found by JAX or by its own deadline."""
    assert guest.handshake is not None
    try:
        guest.connection.settimeout(FAREWELL_SECONDS)
        guest.connection.sendall(guest.handshake.seal("answer", answer))
    except OSError:
        pass
