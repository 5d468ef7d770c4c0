"""A door that strangers may come to: listeners, connections, and who is turned away.

Strangers may connect at any time. One that does not say a proven hello within seconds is turned away and counted, and
changes nothing else.
"""

from __future__ import annotations

import errno
import selectors
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from stratagem.cluster.hello import to_line
from stratagem.cluster.secret import Handshake, make_nonce, read_object
from stratagem.core.clock import Deadline
from stratagem.core.log import logger

MAX_STRANGERS: Final = 64
"""Connections kept at a time beyond the tasks expected; with more, the one that has been silent longest goes."""

HELLO_SECONDS: Final = 10.0
"""Longest time from a connection to its hello, which takes two messages."""

FAREWELL_SECONDS: Final = 10.0
"""Longest time to hand the answer to one task, and to wait for an answer that is due."""

BACKLOG: Final = 4096
"""Connections that the system keeps while nobody has come to them: with fewer, some of a thousand tasks that start
together would try again only after seconds."""

FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a process or a machine that has no descriptor or no memory left for a connection."""

PAUSE_SECONDS: Final = 0.5
"""How long nobody is let in where there is no room: whoever knocks would keep a processor busy."""

LONGEST_NONCE: Final = 64
"""Characters that a nonce of a guest may have; ours have 32."""

H = TypeVar("H")


@dataclass(eq=False)
class Guest(Generic[H]):
    """A connection to the door, and how far it has come.

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
    hello: H | None = None

    def answer(self, answer: str) -> None:
        """Send the last word to a guest that has said hello.

        Args:
            answer: The word. A task that is gone is found by others, or by its own deadline.
        """
        assert self.handshake is not None
        try:
            self.connection.settimeout(FAREWELL_SECONDS)
            self.connection.sendall(self.handshake.seal("answer", answer))
        except OSError:
            pass


class Door(ABC, Generic[H]):
    """The listening side: connections, and who said hello on which.

    Args:
        name: Whose door it is, for a line.
        secret: What guests prove that they know.
        num_expected: How many guests are expected.
        longest_line: How many bytes a message of a guest may have.
    """

    def __init__(self, name: object, secret: bytes, num_expected: int, longest_line: int) -> None:
        self._name = name
        self._secret = secret
        self._num_expected = num_expected
        self._longest_line = longest_line
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._guests: dict[socket.socket, Guest[H]] = {}
        self._silent: dict[socket.socket, Guest[H]] = {}  # those without a hello; who came first stands first
        self._turned_away = 0
        self._pause: Deadline | None = None

    @abstractmethod
    def _decode(self, text: str) -> H:
        """Return the hello in a text; `ValueError` when it is none."""

    @abstractmethod
    def _admit(self, guest: Guest[H], hello: H) -> None:
        """Take in a guest that has said a proven hello, or tell it why not."""

    def open(self, listener: socket.socket) -> None:
        """Let in who comes to a listener.

        Args:
            listener: A socket that listens.
        """
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
            self._turn_away(silent, f"sent no hello within {silent.until.seconds:g} s")

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno in FULL:
                self._make_room()
            return  # gone again
        connection.setblocking(False)
        guest = Guest[H](connection, str(address[0]), Deadline(HELLO_SECONDS))
        self._guests[connection] = self._silent[connection] = guest
        self._selector.register(connection, selectors.EVENT_READ, self._read)
        if len(self._guests) > self._num_expected + MAX_STRANGERS:
            self._make_room()

    def _longest_silent(self) -> Guest[H] | None:
        """Return who has been here longest without a hello."""
        return next(iter(self._silent.values()), None)

    def _make_room(self) -> None:
        """Turn away who has been silent longest; where nobody is silent, let nobody in for a while."""
        silent = self._longest_silent()
        if silent is not None:
            self._turn_away(silent, "had sent no hello when many others connected")
            return
        if self._pause is None:
            logger.warning("%s has no file descriptor left for a connection; it tries again.", self._name)
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

    def _take(self, guest: Guest[H], line: bytes) -> None:
        """Take the next line of a guest; `ValueError` when it is none of ours."""
        if guest.hello is not None:
            raise ValueError("sent more than its hello")
        if guest.handshake is not None:
            guest.hello = self._decode(guest.handshake.open("hello", line))
            return
        nonce = read_object(line).get("nonce")
        if not isinstance(nonce, str) or not 0 < len(nonce) <= LONGEST_NONCE:
            raise ValueError("sent no nonce")
        guest.handshake = Handshake(self._secret, nonce, make_nonce())
        guest.connection.send(to_line({"nonce": guest.handshake.host}) + guest.handshake.seal("host", ""))

    def _turn_away(self, guest: Guest[H], reason: str) -> None:
        self._turned_away += 1
        if self._turned_away == 1:  # one line, however many come
            logger.warning("%s: a connection from %s is closed: it %s.", self._name, guest.address, reason)
        self._drop(guest)

    def _drop(self, guest: Guest[H]) -> None:
        self._hand_over(guest)
        guest.connection.close()

    def _hand_over(self, guest: Guest[H]) -> None:
        """Listen to a guest no more; its connection is the caller's business."""
        self._selector.unregister(guest.connection)
        del self._guests[guest.connection]
        self._silent.pop(guest.connection, None)

    def close_listeners(self) -> None:
        """Let nobody in any more."""
        for listener in self._listeners:
            if self._pause is None:
                self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Let nobody in any more, and close the connections that are still the door's."""
        self.close_listeners()
        for guest in list(self._guests.values()):
            self._drop(guest)
        self._selector.close()
