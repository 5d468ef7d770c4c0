"""The chief's connections to workers and parameter servers: made, lost, and made again where a worker has moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

from stratagem.core.clock import Clock, Deadline
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys, Role, holder_for

_HELLO_SECONDS: Final = 5.0
"""How often the chief says that it is still there."""

_SEARCH_SECONDS: Final = 1.0
"""The same, while a task is away: a server may know where it is."""

_TRY_SECONDS: Final = 3.0
"""How long a worker is called at one address before it is called at the other."""

_RETRY_SECONDS: Final = 0.2
"""How long to wait before a lost task is called again."""


@dataclass(slots=True)
class Link:
    """The connection to one task, and what it has been sent.

    Args:
        role: Worker or parameter server.
        index: Its index.
        planned: The address that the cluster gives for it.
        address: The address at which it is called.
        call_at: When to say hello, or to try again.
        patience: When it expires, a worker may be looked for elsewhere.
        channel: The connection; None between two.
        is_up: Whether it has answered.
        sent: Closures by the numbers of their requests.
        given_up: Closures that the worker was asked to give up, by the numbers of these requests.
        known: Numbers of the shared values that it has.
    """

    role: Role
    index: int
    planned: str
    address: str
    call_at: Deadline
    patience: Deadline
    channel: Channel | None = None
    is_up: bool = False
    sent: dict[int, int] = field(default_factory=dict)
    given_up: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The task, as messages name it."""
        return f"{self.role} {self.index}"

    @property
    def has_moved(self) -> bool:
        """Whether it is called elsewhere than it was to be."""
        return self.address != self.planned


class Links:
    """The connections to all tasks. Only the thread that talks to them may connect and disconnect.

    Args:
        workers: Addresses of the workers, by index.
        servers: Addresses of the parameter servers.
        keys: The keys of the chief, or None.
        clock: Where time comes from.
    """

    def __init__(self, workers: Sequence[str], servers: Sequence[str], keys: Keys | None, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._announced: dict[int, str] = {}
        soon = Deadline(_HELLO_SECONDS, clock)
        self._links = {
            (role, index): Link(role, index, address, address, call_at=soon, patience=soon)
            for role, addresses in ((Role.WORKER, workers), (Role.PS, servers))
            for index, address in enumerate(addresses)
        }
        self.poller = zmq.Poller()
        """Knows all connections."""

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def __getitem__(self, key: tuple[Role, int]) -> Link:
        return self._links[key]

    @property
    def addresses(self) -> dict[tuple[Role, int], str]:
        """Where each task is called."""
        return {key: link.address for key, link in self._links.items()}

    @property
    def seconds_to_call(self) -> float:
        """How long until the next task is to be called."""
        return min(link.call_at.remaining for link in self)

    def with_news(self, ready: Mapping[Any, int]) -> Iterable[Link]:
        """Return the links on which something has come or happened.

        Args:
            ready: What polling returned.
        """
        return [
            link
            for link in self
            if link.channel is not None and (link.channel.socket in ready or link.channel.monitor in ready)
        ]

    def connect(self, link: Link) -> None:
        """Make a connection where there is none; the task is to be called again after some time."""
        someone_is_away = not all(each.is_up for each in self)
        link.call_at = Deadline(_SEARCH_SECONDS if someone_is_away else _HELLO_SECONDS, self._clock)
        if link.channel is None:
            holder = holder_for(link.role, link.index)
            link.channel = Channel(link.name, link.address, keys=self._keys, holder=holder)
            self.poller.register(link.channel.socket, zmq.POLLIN)
            self.poller.register(link.channel.monitor, zmq.POLLIN)

    def disconnect(self, link: Link, *, is_lost: bool = False) -> None:
        """Give up a connection, and what was known of the task.

        Args:
            link: The connection.
            is_lost: Whether the task has gone: it is not called again at once.
        """
        if link.channel is not None:
            self.poller.unregister(link.channel.socket)
            self.poller.unregister(link.channel.monitor)
            link.channel.close()
        link.channel, link.is_up = None, False
        link.call_at = Deadline(_RETRY_SECONDS if is_lost else 0.0, self._clock)
        link.sent, link.given_up, link.known = {}, {}, set()
        link.patience = Deadline(_TRY_SECONDS, self._clock)

    def disconnect_all(self) -> None:
        """Give up all connections."""
        for link in self:
            self.disconnect(link)

    def hear(self, announced: Iterable[tuple[int, str]]) -> None:
        """Note where workers say that they are: index and address."""
        self._announced.update(announced)

    def follow(self) -> None:
        """Call workers that are away at the planned address and at the announced one, in turn."""
        for index, announced in self._announced.items():
            link = self._links.get((Role.WORKER, index))
            if link is None or link.is_up or not link.patience.expired:
                continue
            other = announced if link.address != announced else link.planned
            if other != link.address:
                link.address = other
                self.disconnect(link)
        self._announced.clear()
