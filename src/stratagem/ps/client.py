"""What the chief and the workers ask of the parameter servers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError
from stratagem.program.remote_values import RowChange
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys
from stratagem.transport.message import Message

REQUEST_SECONDS: Final = 120.0
"""How long a parameter server may take over one request. The first gradient compiles the update."""

_REPORT_SECONDS: Final = 2.0
"""How long a parameter server may take to tell its counts, which nothing depends on."""


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
        value: A new value, a summand or a gradient, of the variable's shape; or a gradient's rows (`RowChange`).
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

    Attributes:
        term: Goes with each request; a server refuses those of another term (`service`).
        is_lost: Whether one was lost in this term.
    """

    def __init__(self, addresses: Sequence[str], keys: Keys | None = None, clock: Clock | None = None) -> None:
        self.term = ""
        self.is_lost = False
        self._addresses = list(addresses)
        self._keys = keys
        self._clock = clock or Clock()
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def begin(self, term: str) -> None:
        """Ask in another term from now on, on new connections."""
        self.close()
        self.term, self.is_lost = term, False

    def close(self) -> None:
        """Give up the connections."""
        with self._lock:
            self._seen.clear()
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
                numbers = {
                    index: self._channel(index, deadline).send(
                        replace(message, fields={**message.fields, "term": self.term})
                    )
                    for index, message in requests.items()
                }
                return {index: self._channels[index].receive(number, deadline) for index, number in numbers.items()}
            except UnavailableError:
                # A lost channel stays lost; the next request tries anew, as the server may have come back.
                self.is_lost = True
                for index in requests:
                    if index in self._channels:
                        self._channels.pop(index).close()
                raise

    def ask_all(self, message: Message, seconds: float = REQUEST_SECONDS) -> list[Message]:
        """Ask all servers the same; return their answers in order."""
        answers = self.ask(dict.fromkeys(range(len(self)), message), seconds)
        return [answers[index] for index in range(len(self))]

    def report(self) -> dict[str, int]:
        """Return what the servers count (`ClusterCoordinator.metrics`), without those that do not answer."""
        counts: dict[str, int] = {"updates": 0, "staleness": 0, "max staleness": 0}
        for index in range(len(self)):
            try:
                fields = self.ask({index: Message("report")}, _REPORT_SECONDS)[index].fields
            except UnavailableError:
                continue
            counts["updates"] += fields["updates"]
            counts["staleness"] += fields["staleness"]
            counts["max staleness"] = max(counts["max staleness"], fields["max staleness"])
        return counts

    def read(
        self, variables: Sequence[Sequence[Location]], ids: Sequence[np.ndarray | None] | None = None
    ) -> list[np.ndarray]:
        """Return the values of variables, by their parts, or rows of them.

        Args:
            variables: The parts of each.
            ids: Which rows of each, ascending; None for all.
        """
        requests: dict[int, _Request] = {}
        for place, (parts, wanted) in enumerate(zip(variables, ids or [None] * len(variables), strict=True)):
            for part, own in zip(parts, _ids_by_part(parts, wanted), strict=True):
                # No rows at all have a shape too: that of the first part's.
                if own is None or len(own) or (part is parts[0] and wanted is not None and not len(wanted)):
                    requests.setdefault(part.server, _Request()).add(place, part, own)
        answers = self.ask({server: request.message() for server, request in requests.items()})
        pieces: list[dict[str, np.ndarray]] = [{} for _ in variables]
        for server, request in requests.items():
            answer = answers[server]
            found = zip(request.wanted, answer.arrays, answer.fields["versions"], strict=True)
            for (place, name), array, version in found:
                pieces[place][name] = array
                self._seen[name] = version
        return [
            _joined([pieces[place][part.name] for part in parts if part.name in pieces[place]])
            for place, parts in enumerate(variables)
        ]

    def change(self, changes: Sequence[Change], contribution: Mapping[str, Any] | None = None) -> None:
        """Change variables, and wait until it is done. Parts of different variables change at different moments.

        Args:
            changes: What to change.
            contribution: The round that the changes are for, and how it knows them (`ps.contributions`): they are
                held until the chief commits it. None changes the variables now.
        """
        kind = "change" if contribution is None else "contribute"
        operations: dict[int, list[dict[str, Any]]] = {}
        arrays: dict[int, list[np.ndarray]] = {}
        for change in changes:
            for part, pieces in zip(change.parts, _divided(change), strict=True):
                operation = {"op": change.op, "name": part.name, **(change.more or {})}
                if isinstance(change.value, RowChange):
                    operation["in_rows"] = True
                if change.op == "apply":
                    operation["seen"] = self._seen.get(part.name)
                operations.setdefault(part.server, []).append(operation)
                arrays.setdefault(part.server, []).extend(pieces)
        more = contribution or {}
        self.ask({i: Message(kind, {**more, "operations": each}, arrays[i]) for i, each in operations.items()})

    def _channel(self, index: int, deadline: Deadline) -> Channel:
        if index not in self._channels:
            channel = self._channels[index] = Channel(
                f"ps {index}", self._addresses[index], keys=self._keys, clock=self._clock
            )
            channel.share_memory(deadline)
        return self._channels[index]


class _Request:
    """What is read of one server."""

    def __init__(self) -> None:
        self.wanted: list[tuple[int, str]] = []
        self._ids: list[np.ndarray] = []
        self._in_rows: list[int] = []

    def add(self, place: int, part: Location, ids: np.ndarray | None) -> None:
        """Ask for a part of the variable at a place, or for rows of it."""
        if ids is not None:
            self._in_rows.append(len(self.wanted))
            self._ids.append(ids)
        self.wanted.append((place, part.name))

    def message(self) -> Message:
        """Return it as a message."""
        return Message("read", {"names": [name for _, name in self.wanted], "in_rows": self._in_rows}, self._ids)


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _divided(change: Change) -> list[list[np.ndarray]]:
    """Return what is sent to each part: an array; of a change of rows, their numbers in the part, and the rows."""
    value, parts = change.value, change.parts
    if isinstance(value, RowChange):
        rows = np.split(value.values, np.searchsorted(value.ids, _ends(parts)))
        return [[own, piece] for own, piece in zip(_ids_by_part(parts, value.ids), rows, strict=True)]
    array = np.asarray(value)
    return [[piece] for piece in np.split(array, _ends(parts))] if len(parts) > 1 else [[array]]


def _ids_by_part(parts: Sequence[Location], ids: np.ndarray | None) -> list[Any]:
    """Return which rows of each part are meant by ascending rows of the whole; None for all."""
    if ids is None:
        return [None] * len(parts)
    ends = _ends(parts)
    own_ids = np.split(ids, np.searchsorted(ids, ends))
    return [own - start for own, start in zip(own_ids, [0, *ends], strict=True)]


def _ends(parts: Sequence[Location]) -> list[int]:
    """Return where the parts of a variable end, but for the last."""
    return list(itertools.accumulate(part.rows or 0 for part in parts[:-1]))
