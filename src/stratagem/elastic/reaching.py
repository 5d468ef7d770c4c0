"""The way to the coordinator of elastic training: connections, tried again and again, the hello, and its answer."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final

from stratagem.cluster.door import FAREWELL_SECONDS
from stratagem.cluster.knock import ANOTHER_PROGRAM, read_line, shake_hands
from stratagem.cluster.secret import UnprovenError, read_object
from stratagem.cluster.spec import split_address
from stratagem.core import environment
from stratagem.core.clock import Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError
from stratagem.elastic.wire import Wire

CONNECT_SECONDS: Final = 10.0
"""Longest try of one connection."""


def reach(
    address: str,
    name: str,
    hello: str,
    secret: bytes,
    deadline: Deadline,
    gives_up: Callable[[], bool] = lambda: False,
) -> tuple[socket.socket, Wire, dict[str, Any]]:
    """Connect to the coordinator; return the connection, its messages, and what the coordinator answers to the hello.

    Connections that fail are tried again until the deadline: the coordinator may come later.

    Args:
        address: Where the coordinator listens, as host:port.
        name: Who connects, for messages.
        hello: What it says.
        secret: The secret of the cluster.
        deadline: When to give up.
        gives_up: Whether to give up before that.

    Raises:
        StartupError: Nobody answered in time.
        ClusterError: The coordinator does not know the secret.
        PeerError: The coordinator refuses who connects.
    """
    host_and_port, state, pause = split_address(address), "it did not answer", 0.05
    while not deadline.expired and not gives_up():
        try:
            connection = socket.create_connection(host_and_port, max(0.01, min(CONNECT_SECONDS, deadline.remaining)))
        except OSError as error:
            state = error.strerror or str(error)
        else:
            try:
                return connection, *_said_hello(connection, name, hello, secret, address)
            except TimeoutError:
                connection.close()
            except OSError as error:
                connection.close()
                state = error.strerror or str(error)
            except BaseException:
                connection.close()
                raise
        deadline.clock.wait(min(pause, deadline.remaining))
        pause = min(2 * pause, 1.0)
    raise StartupError(
        f"{name} did not reach the coordinator of elastic training at {address} within {deadline.seconds:g} s: "
        f"{state}.",
        "The launcher that was given --elastic is the coordinator. Without it, the workers cannot find each other.",
        f"Check that the launcher runs, and that this host can reach the host and port in {environment.ELASTIC}.",
    )


def _said_hello(
    connection: socket.socket, name: str, hello: str, secret: bytes, address: str
) -> tuple[Wire, dict[str, Any]]:
    """Prove the secret, say hello, and return what was answered."""
    try:
        handshake, unread = shake_hands(connection, secret)
    except UnprovenError:
        raise ClusterError(
            f"{name} reached {address}, but the process there does not know the secret that "
            f"{'it has' if secret else 'a process without one expects'}.",
            "The process is another program, or the coordinator has another secret or none.",
            f"Set {environment.SECRET}, or {environment.SECRET_FILE}, to the same value in every process and the "
            "launcher.",
        ) from None
    connection.sendall(handshake.seal("hello", hello))
    line, unread = read_line(connection, unread, Deadline(FAREWELL_SECONDS))
    try:
        answer = read_object(handshake.open("answer", line).encode())
        if "error" not in answer:
            return Wire(handshake, "member", unread), answer
        message = str(answer["message"])
    except (ValueError, TypeError, KeyError):
        raise ConnectionError(ANOTHER_PROGRAM) from None
    raise _Refused(message)


class _Refused(PeerError):
    """Refusal of the coordinator, in its own words: they are an explanation already."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
