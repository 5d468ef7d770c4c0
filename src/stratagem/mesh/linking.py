"""Connections between workers of different hosts who may change: they are made anew in each world.

A worker listens while a world forms, at the address by which it reached the coordinator. Those of its group on later
hosts connect to it and prove that they know the secret of the cluster. What is sent afterwards is neither encrypted nor
proved, as with Gloo.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from stratagem.cluster.door import Door, Guest
from stratagem.cluster.knock import read_line, shake_hands
from stratagem.cluster.spec import split_address
from stratagem.core.clock import Deadline
from stratagem.host_memory.links import Links

LINK_SECONDS: Final = 30.0
"""Longest wait for those of a group, all of whom are at the same place."""

_SLICE_SECONDS: Final = 0.05
_LONGEST_HELLO: Final = 1024


class Reach(NamedTuple):
    """How workers of other hosts reach this one.

    Args:
        host: Its own address, from which it has reached the coordinator.
        secret: What both sides prove that they know.
    """

    host: str
    secret: bytes


class Caller(NamedTuple):
    """What a worker says that connects.

    Args:
        world: The number of its world.
        position: Its position in its group.
    """

    world: int
    position: int


class LinkDoor(Door[Caller]):
    """Where those of a group on later hosts connect to this worker.

    Args:
        reach: How they reach it.
        world: The number of the world of workers.
        positions: Their positions in the group.

    Raises:
        OSError: This host has no port left, or no longer this address.
    """

    def __init__(self, reach: Reach, world: int, positions: Sequence[int]) -> None:
        super().__init__("a worker of an elastic run", reach.secret, len(positions), _LONGEST_HELLO)
        self._world = world
        self._missing = set(positions)
        self._connections: dict[int, socket.socket] = {}
        listener = socket.create_server((reach.host, 0), family=_family(reach.host))
        self.address = f"{f'[{reach.host}]' if ':' in reach.host else reach.host}:{listener.getsockname()[1]}"
        self.open(listener)

    def let_in(self, deadline: Deadline, is_over: Callable[[], bool]) -> None:
        """Wait for those who are to connect.

        Args:
            deadline: How long to wait.
            is_over: Whether their world has ended meanwhile.

        Raises:
            TimeoutError: Not all have come.
        """
        while self._missing:
            if deadline.expired or is_over():
                raise TimeoutError(f"no connection from {len(self._missing)} of its group")
            self.serve(_SLICE_SECONDS)

    def take(self) -> dict[int, socket.socket]:
        """Return the connections, by position; from now on they are the caller's."""
        taken, self._connections = self._connections, {}
        return taken

    def close(self) -> None:
        """Let nobody in any more, and close the connections that nobody has taken."""
        for connection in self.take().values():
            connection.close()
        super().close()

    def _decode(self, text: str) -> Caller:
        fields = json.loads(text)
        if not isinstance(fields, list) or [type(field) for field in fields] != [int, int]:
            raise ValueError("not a hello of a worker")
        return Caller(*fields)

    def _admit(self, guest: Guest[Caller], hello: Caller) -> None:
        if hello.world != self._world or hello.position not in self._missing:
            self._drop(guest)
            return
        guest.answer("welcome")
        self._hand_over(guest)
        self._missing.remove(hello.position)
        self._connections[hello.position] = guest.connection


def linked(
    door: LinkDoor,
    reach: Reach,
    caller: Caller,
    addresses: Sequence[str],
    names: Sequence[str],
    is_over: Callable[[], bool],
) -> Links:
    """Return connections to the others of a group, all of whom call it and meet before they use them.

    Args:
        door: That of this worker.
        reach: What it proves.
        caller: What it says.
        addresses: Where each of the group listens, in the order of hosts.
        names: The name of each in messages.
        is_over: Whether their world has ended meanwhile.

    Raises:
        OSError: A connection could not be made in time.
        ValueError: Another program listens at an address.
    """
    deadline = Deadline(LINK_SECONDS)
    made: dict[int, socket.socket] = {}
    with ExitStack() as stack:
        for position in range(caller.position):
            made[position] = stack.enter_context(_called(addresses[position], reach.secret, caller, deadline))
        door.let_in(deadline, is_over)
        made.update(door.take())
        stack.pop_all()
    for connection in made.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Links(caller.position, [made.get(position) for position in range(len(addresses))], names)


def _called(address: str, secret: bytes, caller: Caller, deadline: Deadline) -> socket.socket:
    """Connect to a worker, and return when it has said welcome."""
    with ExitStack() as stack:
        connection = stack.enter_context(
            socket.create_connection(split_address(address), max(0.01, deadline.remaining))
        )
        handshake, unread = shake_hands(connection, secret)
        connection.sendall(handshake.seal("hello", json.dumps(list(caller))))
        line, unread = read_line(connection, unread, deadline)
        handshake.open("answer", line)
        if unread:
            raise ConnectionError("it began before all had met")
        stack.pop_all()
    return connection


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
