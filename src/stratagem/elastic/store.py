"""The store of one world: values that its members leave for one another, waits for them, and barriers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any, Final

MAX_BYTES: Final = 256 * 1024 * 1024
"""Most that the values of a world may have together."""

LATE: Final = "late"
"""The wait was not over in time."""

REFUSED: Final = "refused"
"""What was asked for cannot be done."""

OVER: Final = "over"
"""The world has ended."""


@dataclass(frozen=True)
class Answer:
    """What a member gets for something that it has asked for.

    Args:
        to: The member.
        ask: The number of what it has asked for, which it counts itself.
        value: The answer.
        error: Why there is none: `LATE`, `REFUSED` or `OVER`, and words; None where there is one.
    """

    to: int
    ask: int
    value: Any = None
    error: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Wait:
    """Somebody who waits until a moment, at a barrier with a note for the others."""

    member: int
    ask: int
    until: float
    note: str = ""


KEPT: Final = "stratagem/posted/"
"""Keys whose values go on into the next world: somebody may have left them there once, for whoever comes."""


@dataclass
class WorldStore:
    """What the members of a world leave for one another, while it lasts.

    Args:
        world: The number of the world.
        members: Its members.
        values: What it holds at the beginning.
    """

    world: int
    members: frozenset[int]
    values: InitVar[Mapping[str, str]] = MappingProxyType({})
    _values: dict[str, str] = field(init=False)
    _gets: dict[str, list[_Wait]] = field(default_factory=dict)
    _barriers: dict[str, list[_Wait]] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)
    _bytes: int = field(init=False)

    def __post_init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._bytes = sum(map(len, self._values.values()))

    def ask(self, member: int, message: Mapping[str, Any], now: float) -> list[Answer]:
        """Return the answers that something asked for brings, to its member or to others too.

        Args:
            member: Who asks.
            message: What for.
            now: When.

        Raises:
            ValueError: It is no such message.
        """
        ask, key = message.get("ask"), message.get("key")
        if type(ask) is not int or not isinstance(key, str) or message.get("for") not in (*_OPERATIONS, "meet"):
            raise ValueError(f"{message!r} asks for nothing that there is")
        if member not in self.members:
            return [Answer(member, ask, error=(REFUSED, f"member {member} is not in world {self.world}"))]
        seconds, value = message.get("seconds", 0.0), message.get("value", "")
        if type(seconds) not in (int, float) or not isinstance(value, str):
            raise ValueError(f"{seconds!r} is no time, or {value!r} no value")
        wait = _Wait(member, ask, now + seconds, value)
        if message["for"] == "meet":
            return self._meet(wait, key, message.get("of"))
        return _OPERATIONS[message["for"]](self, wait, key, value, bool(message.get("replaces")))

    def tick(self, now: float) -> list[Answer]:
        """Return the answers to waits that are over.

        Args:
            now: The time.
        """
        answers = []
        for key, waits in list(self._gets.items()):
            late = [wait for wait in waits if now >= wait.until]
            answers += [_late(wait, f"nobody has set {key!r}") for wait in late]
            self._keep(self._gets, key, [wait for wait in waits if now < wait.until])
        for key, waits in list(self._barriers.items()):
            if any(now >= wait.until for wait in waits):
                self._broken.add(key)
                missing = len(self.members) - len(waits)
                answers += [_late(wait, f"{missing} did not come to barrier {key!r}") for wait in waits]
                del self._barriers[key]
        return answers

    def close(self, reason: str) -> list[Answer]:
        """Return the answers to all that still wait, at the end of the world.

        Args:
            reason: Why it ends.
        """
        waits = [wait for some in (*self._gets.values(), *self._barriers.values()) for wait in some]
        self._gets.clear()
        self._barriers.clear()
        return [Answer(wait.member, wait.ask, error=(OVER, reason)) for wait in waits]

    def _set(self, wait: _Wait, key: str, value: str, replaces: bool) -> list[Answer]:
        before = self._values.get(key)
        if before is not None and not replaces:
            return [Answer(wait.member, wait.ask, error=(REFUSED, f"ALREADY_EXISTS: {key!r} is set"))]
        size = self._bytes + len(value) - len(before or "")
        if size > MAX_BYTES:
            return [Answer(wait.member, wait.ask, error=(REFUSED, f"RESOURCE_EXHAUSTED: {size} bytes are too many"))]
        self._values[key], self._bytes = value, size
        waiting = self._gets.pop(key, [])
        return [Answer(wait.member, wait.ask), *(Answer(each.member, each.ask, value) for each in waiting)]

    def _list(self, wait: _Wait, key: str, value: str, replaces: bool) -> list[Answer]:
        found = [[name, kept] for name, kept in sorted(self._values.items()) if name.startswith(key)]
        return [Answer(wait.member, wait.ask, found)]

    def _get(self, wait: _Wait, key: str, value: str, replaces: bool) -> list[Answer]:
        if key in self._values:
            return [Answer(wait.member, wait.ask, self._values[key])]
        self._gets.setdefault(key, []).append(wait)
        return []

    def _delete(self, wait: _Wait, key: str, value: str, replaces: bool) -> list[Answer]:
        self._bytes -= len(self._values.pop(key, ""))
        return [Answer(wait.member, wait.ask)]

    def _meet(self, wait: _Wait, key: str, of: Any) -> list[Answer]:
        """Wait for others, and hear what each has brought; for all members, or for those that `of` lists.

        Where one has waited in vain, nobody can meet there any more: some may have given up.
        """
        those = self.members if of is None else frozenset(of if isinstance(of, list) else ())
        if not those <= self.members or wait.member not in those:
            raise ValueError(f"{of!r} are no members among whom {wait.member} is")
        if key in self._broken:
            return [_late(wait, f"others have given up barrier {key!r}")]
        waits = self._barriers.setdefault(key, [])
        if any(each.member == wait.member for each in waits):
            return [Answer(wait.member, wait.ask, error=(REFUSED, f"member {wait.member} is at {key!r} twice"))]
        waits.append(wait)
        if not those <= {each.member for each in waits}:
            return []
        notes = [[each.member, each.note] for each in waits]
        return [Answer(each.member, each.ask, notes) for each in self._barriers.pop(key)]

    def kept(self) -> dict[str, str]:
        """Return the values that go on into the next world."""
        return {key: value for key, value in self._values.items() if key.startswith(KEPT)}

    @staticmethod
    def _keep(table: dict[str, list[_Wait]], key: str, waits: list[_Wait]) -> None:
        table[key] = waits
        if not waits:
            del table[key]


_OPERATIONS: Final[Mapping[str, Callable[[WorldStore, _Wait, str, str, bool], list[Answer]]]] = {
    "set": WorldStore._set,
    "list": WorldStore._list,
    "get": WorldStore._get,
    "delete": WorldStore._delete,
}


def _late(wait: _Wait, reason: str) -> Answer:
    return Answer(wait.member, wait.ask, error=(LATE, f"DEADLINE_EXCEEDED: {reason}"))
