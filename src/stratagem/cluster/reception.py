"""The door of process 0, where the tasks of a cluster say hello."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Mapping
from typing import Any

from stratagem.cluster.door import BACKLOG, Door, Guest
from stratagem.cluster.hello import Hello, Peer, check_fit, double_error
from stratagem.cluster.spec import Task, split_address
from stratagem.core import environment as env
from stratagem.core.clock import Deadline
from stratagem.core.errors import StartupError, StratagemError, name_some
from stratagem.core.hosts import bind_host
from stratagem.core.log import logger


class Reception(Door[Hello]):
    """The listening side: connections, and which task said hello on which.

    Args:
        own: What process 0 itself would say.
        secret: The secret of the cluster.
    """

    def __init__(self, own: Hello, secret: bytes) -> None:
        self._own = own
        self._expected = dict.fromkeys(own.cluster.training_tasks[1:])
        # The same cluster as in our own hello, or a wrong one that is to be told so.
        longest_line = 4 * len(own.encode()) + 65536
        super().__init__(own.peer.task, secret, len(self._expected), longest_line)
        self._arrived: dict[Task, Guest[Hello]] = {}

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

    def _decode(self, text: str) -> Hello:
        return Hello.decode(text, self._own.cluster)

    def _admit(self, guest: Guest[Hello], hello: Hello) -> None:
        refusal = self._refusal(hello)
        if refusal is None:
            self._arrived[hello.peer.task] = guest
            return
        guest.answer(json.dumps(error_answer(refusal)))
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

    def _drop(self, guest: Guest[Hello]) -> None:
        if guest.hello is not None and self._arrived.get(guest.hello.peer.task) is guest:
            del self._arrived[guest.hello.peer.task]
        super()._drop(guest)

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
            guest.answer(text)

    def keep_connections(self) -> dict[int, tuple[socket.socket, bytes]]:
        """Return the connections to the peers, by process index; closing them is the caller's business."""
        kept = {}
        for index, task in enumerate(self._expected, start=1):
            guest = self._arrived[task]
            self._hand_over(guest)
            kept[index] = (guest.connection, guest.unread)
        return kept


def _hello(guest: Guest[Hello]) -> Hello:
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
    end = f"End the program that holds port {port} (a task of an earlier run?)"
    return listen_at(host, port, str(task), f"{end}, or give {task} another port in the cluster of every task.")


def listen_at(host: str, port: int, name: str, remedy: str) -> list[socket.socket]:
    """Return sockets that listen at an address of this machine, no wider than needed.

    Args:
        host: The host in the address.
        port: The port.
        name: Who listens, for messages.
        remedy: What to do where it cannot.

    Raises:
        StartupError: The port is busy, or no address of the host is this machine's.
    """
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
        f"{name} cannot listen on port {port} of {host}: {reason}.",
        remedy,
    )


def error_answer(error: StratagemError) -> dict[str, str]:
    """Return an error as the answer to a task that said hello."""
    return {"error": type(error).__name__, "message": str(error)}
