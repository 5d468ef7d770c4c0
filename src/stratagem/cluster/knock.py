"""The guest's side of a door: what it says before its hello."""

from __future__ import annotations

import socket
from typing import Final

from stratagem.cluster.door import HELLO_SECONDS
from stratagem.cluster.hello import to_line
from stratagem.cluster.secret import Handshake, UnprovenError, make_nonce, read_object
from stratagem.core.clock import Deadline

MAX_LINE: Final = 4 * 1024 * 1024
"""Longest answer in bytes: the peers of a cluster of ten thousand tasks fit."""

ANOTHER_PROGRAM: Final = "another program listens there, or the cluster started without this task"


def shake_hands(connection: socket.socket, secret: bytes) -> tuple[Handshake, bytes]:
    """Exchange nonces with who listens; return them with what was read beyond.

    Args:
        connection: A connection that nothing was said on.
        secret: What both sides prove that they know.

    Raises:
        UnprovenError: The other side does not know the secret.
        ConnectionError: It is another program.
    """
    nonce = make_nonce()
    connection.sendall(to_line({"nonce": nonce}))
    until = Deadline(HELLO_SECONDS)
    first, unread = read_line(connection, b"", until)
    second, unread = read_line(connection, unread, until)
    try:
        host = read_object(first)["nonce"]
        if not isinstance(host, str):
            raise TypeError
        handshake = Handshake(secret, nonce, host)
        handshake.open("host", second)
    except UnprovenError:
        raise
    except (ValueError, TypeError, KeyError):
        raise ConnectionError(ANOTHER_PROGRAM) from None
    return handshake, unread


def read_line(connection: socket.socket, unread: bytes, deadline: Deadline) -> tuple[bytes, bytes]:
    """Return the next line and what was read beyond it.

    Args:
        connection: The connection.
        unread: What was read before.
        deadline: When the line must be there.

    Raises:
        TimeoutError: It was not.
        ConnectionError: The other side closed the connection, or sent no line.
    """
    while b"\n" not in unread:
        connection.settimeout(max(0.01, deadline.remaining))
        data = connection.recv(65536)
        unread += data
        if not data or len(unread) > MAX_LINE:
            raise ConnectionError("it was reached, and closed the connection without a word")
    line, _, beyond = unread.partition(b"\n")
    return line, beyond
