"""What the chief and the workers ask of the parameter servers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys, Role
from stratagem.transport.message import Message

REQUEST_SECONDS: Final = 120.0
"""How long a parameter server may take over one request. The first gradient compiles the update."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a part of a variable, or of a slot, lives.

    Args:
        server: Index of the parameter server.
        name: Its name there.
        rows: How many rows of the first axis; None for a variable that is one part.
    """

    server: int
    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a variable.

    Args:
        op: "set", "add" or "apply".
        parts: Where it lives.
        value: A new value, a summand or a gradient, of the variable's shape.
        more: What `apply` needs: `optimizer`, `iterations`, `rate`.
    """

    op: str
    parts: Sequence[Location]
    value: Any
    more: Mapping[str, Any] | None = None


class Servers:
    """All parameter servers of a cluster, as one task sees them. Threads may share it; requests go one after another.

    Args:
        addresses: Of the parameter servers, by index.
        keys: The keys of this task, or None.
        clock: Where time comes from.
    """

    def __init__(self, addresses: Sequence[str], keys: Keys | None = None, clock: Clock | None = None) -> None:
        self._addresses = list(addresses)
        self._keys = keys
        self._clock = clock or Clock()
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def close(self) -> None:
        """Give up the connections."""
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes received and sent so far."""
        channels = list(self._channels.values())
        return sum(channel.received_bytes for channel in channels), sum(channel.sent_bytes for channel in channels)

    def ask(self, requests: Mapping[int, Message], seconds: float = REQUEST_SECONDS) -> dict[int, Message]:
        """Ask several servers at once and wait for all of them.

        Args:
            requests: By index of the server.
            seconds: How long to wait for all.

        Raises:
            UnavailableError: A server was lost, or did not answer in time.
            Exception: What a server answered instead.
        """
        deadline = Deadline(seconds, self._clock)
        with self._lock:
            try:
                numbers = {index: self._channel(index).send(message) for index, message in requests.items()}
                return {index: self._channel(index).receive(number, deadline) for index, number in numbers.items()}
            except UnavailableError:
                # A lost channel stays lost; the next request tries anew, as the server may have come back.
                for index in requests:
                    self._channels.pop(index).close()
                raise

    def ask_all(self, message: Message, seconds: float = REQUEST_SECONDS) -> list[Message]:
        """Ask all servers the same; return their answers in order."""
        answers = self.ask(dict.fromkeys(range(len(self)), message), seconds)
        return [answers[index] for index in range(len(self))]

    def read(self, variables: Sequence[Sequence[Location]]) -> list[np.ndarray]:
        """Return the values of variables, by their parts."""
        wanted = _by_server(part for parts in variables for part in parts)
        answers = self.ask({i: Message("read", {"names": list(names)}) for i, names in wanted.items()})
        found: dict[tuple[int, str], np.ndarray] = {}
        for server, names in wanted.items():
            answer = answers[server]
            for name, array, version in zip(names, answer.arrays, answer.fields["versions"], strict=True):
                found[server, name] = array
                self._seen[name] = version
        values = [[found[part.server, part.name] for part in parts] for parts in variables]
        return [pieces[0] if len(pieces) == 1 else np.concatenate(pieces) for pieces in values]

    def change(self, changes: Sequence[Change]) -> None:
        """Change variables, and wait until it is done. Parts of different variables change at different moments."""
        operations: dict[int, list[dict[str, Any]]] = {}
        arrays: dict[int, list[np.ndarray]] = {}
        for change in changes:
            for part, piece in zip(change.parts, _divided(change), strict=True):
                operation = {"op": change.op, "name": part.name, **(change.more or {})}
                if change.op == "apply":
                    operation["seen"] = self._seen.get(part.name)
                operations.setdefault(part.server, []).append(operation)
                arrays.setdefault(part.server, []).append(piece)
        self.ask({i: Message("change", {"operations": each}, arrays[i]) for i, each in operations.items()})

    def _channel(self, index: int) -> Channel:
        if index not in self._channels:
            self._channels[index] = Channel(
                f"ps {index}", self._addresses[index], keys=self._keys, role=Role.PS, clock=self._clock
            )
        return self._channels[index]


def _by_server(parts: Iterable[Location]) -> dict[int, dict[str, None]]:
    """Return the names on each server, each once, in order."""
    names: dict[int, dict[str, None]] = {}
    for part in parts:
        names.setdefault(part.server, {})[part.name] = None
    return names


def _divided(change: Change) -> list[np.ndarray]:
    array = np.asarray(change.value)
    if len(change.parts) == 1:
        return [array]
    ends = list(itertools.accumulate(part.rows or 0 for part in change.parts))
    return np.split(array, ends[:-1])
