"""The chief's request to all parameter servers to apply a round: which were asked, which have answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import UnavailableError
from stratagem.ps.client import REQUEST_SECONDS
from stratagem.transport.message import Message


class Commits:
    """One round at a time is applied, by all servers.

    Args:
        term: The term (`server.service`) in which the servers are asked.
        servers: Indices of the parameter servers.
        clock: Where time comes from.
    """

    def __init__(self, term: str, servers: Iterable[int], clock: Clock) -> None:
        self._term = term
        self._servers = list(servers)
        self._clock = clock
        self._round = 0
        self._message = Message("commit")
        self._asked: dict[int, int | None] = {}
        """The servers that have not applied it, with the number of the request to each, once it is asked."""
        self._by = Deadline(0.0, clock)

    def begin(self, round: int, contributions: Sequence[str]) -> None:
        """Let all servers be asked to apply a round: these contributions, and no others."""
        self._round = round
        self._asked = dict.fromkeys(self._servers)
        self._by = Deadline(REQUEST_SECONDS, self._clock)
        self._message = Message("commit", {"term": self._term, "round": round, "contributions": contributions})

    @property
    def to_ask(self) -> list[tuple[int, Message]]:
        """The servers that are still to be asked, and what."""
        return [(server, self._message) for server, number in self._asked.items() if number is None]

    def ask(self, server: int, number: int | None) -> None:
        """Take note of the number of a request; None where the server was lost, and is to be asked again."""
        if server in self._asked:
            self._asked[server] = number

    def is_answer(self, server: int, number: int) -> bool:
        """Whether this is the answer to a request to apply the round."""
        return self._asked.get(server) == number

    def end(self, server: int) -> bool:
        """Take note that a server has applied the round; return whether all have."""
        del self._asked[server]
        return not self._asked

    def give_up(self) -> None:
        """Ask and expect nothing more."""
        self._asked = {}

    @property
    def failure(self) -> UnavailableError | None:
        """What to tell the user when the servers have taken too long."""
        if not self._asked or not self._by.expired:
            return None
        slow = ", ".join(f"ps {server}" for server in self._asked)
        return UnavailableError(
            f"{slow} has not applied round {self._round} within {REQUEST_SECONDS:g} s.",
            "See the end of its output; start the cluster again.",
        )
