"""One end of a connection of the coordinator, which never waits: what cannot be sent at once is sent later."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from stratagem.elastic.wire import Wire


class Line:
    """A connection that says messages.

    Args:
        connection: The connection.
        wire: Its messages.

    Attributes:
        unsent: Bytes that are left to be sent.
    """

    def __init__(self, connection: socket.socket, wire: Wire) -> None:
        self.connection = connection
        self.wire = wire
        self.unsent = bytearray()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message, as far as it goes without waiting."""
        self.unsent += self.wire.seal(message)
        self.flush()

    def flush(self) -> None:
        """Send what is left. That the other side is gone shows when we read."""
        try:
            while self.unsent:
                del self.unsent[: self.connection.send(self.unsent)]
        except OSError:
            pass
