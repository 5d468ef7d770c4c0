"""Requests of the chief and the workers to the parameter servers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from stratagem.core.clock import Deadline
from stratagem.core.errors import UnavailableError
from stratagem.ps.changes import Change, Location, ids_by_part
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys
from stratagem.transport.message import Message

REQUEST_SECONDS: Final = 120.0
"""How long a parameter server may take over one request. The first gradient compiles the update."""

_REPORT_SECONDS: Final = 2.0
"""How long a parameter server may take to tell its counts, which nothing depends on."""


class Servers:
    """All parameter servers of a cluster, as one task sees them. Threads may share it; requests go one after another.

    Args:
        addresses: Addresses of the parameter servers, by index.
        keys: The keys of this task, or None.

    Attributes:
        term: Goes with each request; a server refuses those of another term (`server.service`).
        is_lost: Whether one was lost in this term.
    """

    def __init__(self, addresses: Sequence[str], keys: Keys | None = None) -> None:
        self.term = ""
        self.is_lost = False
        self._addresses = list(addresses)
        self._keys = keys
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self.may_ask: Callable[[], None] = _anything
        """Called before each request; raises what keeps the function that asks from it."""
        self._seen: dict[str, int] = {}
        """The version of each part that was read last."""

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

    def settle(self) -> None:
        """Wait until no request is under way."""
        with self._lock:
            pass

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
        deadline = Deadline(seconds)
        numbers: dict[int, int] = {}
        with self._lock:
            self.may_ask()
            try:
                for index, message in requests.items():
                    message = replace(message, fields={**message.fields, "term": self.term})
                    numbers[index] = self._channel(index, deadline).send(message)
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
        return list(self.ask(dict.fromkeys(range(len(self)), message), seconds).values())

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
        self,
        variables: Sequence[Sequence[Location]],
        ids: Sequence[np.ndarray | None] | None = None,
        steps: Mapping[int, np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return the values of variables, by their parts, or rows of them.

        Args:
            variables: The parts of each.
            ids: Which rows of each, ascending; None for all.
            steps: By what some go on at the same moment, by their place; these are not divided.
        """
        requests: defaultdict[int, list[tuple[int, str, np.ndarray | None]]] = defaultdict(list)
        for place, (parts, wanted) in enumerate(zip(variables, ids or [None] * len(variables), strict=True)):
            for part, own in zip(parts, ids_by_part(parts, wanted), strict=True):
                # The value of no rows at all has a shape, too: the first part tells it.
                if own is None or len(own) or (part is parts[0] and wanted is not None and not len(wanted)):
                    requests[part.server].append((place, part.name, own))
        answers = self.ask({server: _reading(wanted, steps or {}) for server, wanted in requests.items()})
        pieces: dict[tuple[int, str], np.ndarray] = {}
        for server, answer in answers.items():
            found = zip(requests[server], answer.arrays, answer.fields["versions"], strict=True)
            for (place, name, _), array, version in found:
                pieces[place, name] = array
                self._seen[name] = version
        values = (
            [pieces[place, part.name] for part in parts if (place, part.name) in pieces]
            for place, parts in enumerate(variables)
        )
        return [value[0] if len(value) == 1 else np.concatenate(value) for value in values]

    def exchange(self, part: Location, before: np.ndarray, after: np.ndarray) -> bool:
        """Replace the value of a variable that is one part, if it still is the one before; return whether it was."""
        return self.ask({part.server: Message("exchange", {"name": part.name}, [before, after])})[part.server].fields[
            "done"
        ]

    def change(self, changes: Sequence[Change], contribution: Mapping[str, Any] | None = None) -> None:
        """Change variables, and wait until it is done. Parts of different variables change at different moments.

        Args:
            changes: What to change.
            contribution: The round that the changes are for, and how it knows them (`synchronous.contributions`):
                they are held until the chief commits it. None changes the variables now.
        """
        kind = "change" if contribution is None else "contribute"
        operations: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        arrays: defaultdict[int, list[np.ndarray]] = defaultdict(list)
        for change in changes:
            for part, operation, own in change.operations():
                if change.op == "apply":
                    operation["seen"] = self._seen.get(part.name)
                operations[part.server].append(operation)
                arrays[part.server] += own
        more = contribution or {}
        self.ask({i: Message(kind, {**more, "operations": each}, arrays[i]) for i, each in operations.items()})

    def _channel(self, index: int, deadline: Deadline) -> Channel:
        if index not in self._channels:
            self._channels[index] = Channel(f"ps {index}", self._addresses[index], keys=self._keys)
            self._channels[index].share_memory(deadline)
        return self._channels[index]


def _anything() -> None:
    """Let everything be asked."""


def _reading(wanted: Sequence[tuple[int, str, np.ndarray | None]], steps: Mapping[int, np.ndarray]) -> Message:
    """Return the request for parts, by their names, for rows of them, or for those that go on."""
    rows = {number: ids for number, (_, _, ids) in enumerate(wanted) if ids is not None}
    taken = {number: steps[place] for number, (place, _, _) in enumerate(wanted) if place in steps}
    fields = {"names": [name for _, name, _ in wanted], "in_rows": list(rows), "taken": list(taken)}
    return Message("read", fields, [*rows.values(), *taken.values()])
