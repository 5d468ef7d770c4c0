"""The values of elastic training: the bounds of a run, a member, a world, and the error of one that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stratagem.core.errors import PeerError


class WorldChangedError(PeerError):
    """A wait within a world that has ended. Remedy: report the last completed step, and wait for the next world."""

    is_of_peer = True

    def __init__(self, world: int, reason: str) -> None:
        super().__init__(
            f"World {world} has ended: {reason}.",
            "This process waited for a value that will not come.",
            "Find out why the other process has ended. In a step of `fit` this process continues in the next world. "
            "Elsewhere it ends, and the run begins again.",
        )
        self.world = world
        self.reason = reason


class Bounds(NamedTuple):
    """Bounds of the number of workers of a run.

    Args:
        least: With fewer it waits.
        wanted: So many there are at its start.
        most: More are not taken in.
    """

    least: int
    wanted: int
    most: int

    @property
    def may_change(self) -> bool:
        """Whether the number of workers may change while they train."""
        return self.least < self.most

    def rows_of_batch(self, given: int, workers: int) -> int:
        """Return how many rows a batch has if each worker keeps its rows.

        Args:
            given: Rows of a batch as the program makes it, for the number of workers at the start.
            workers: How many there are.

        Example:
            >>> Bounds(least=1, wanted=3, most=4).rows_of_batch(12, workers=2)
            8
        """
        return max(1, given * workers // self.wanted)


@dataclass(frozen=True)
class Member:
    """A process that has joined.

    Args:
        number: Its number, which no other member of the run ever has.
        host: Name of its machine.
        pid: Its process number there.
        address: Where other members reach it.
        is_spare: Whether it trains only when somebody is missing.

    Example:
        >>> str(Member(3, "node7", 4711, "node7:9000"))
        'member 3 (host node7, pid 4711)'
    """

    number: int
    host: str
    pid: int
    address: str
    is_spare: bool = False

    def __str__(self) -> str:
        return f"member {self.number} (host {self.host}, pid {self.pid})"

    def encode(self) -> list[int | str | bool]:
        """Return the member as a list for JSON."""
        return [self.number, self.host, self.pid, self.address, self.is_spare]

    @classmethod
    def decode(cls, fields: Any) -> Member:
        """Return the member that `encode` wrote; `ValueError` when it is none."""
        if not isinstance(fields, list) or [type(field) for field in fields] != [int, str, int, str, bool]:
            raise ValueError(f"{fields!r} is no member")
        return cls(*fields)


@dataclass(frozen=True)
class World:
    """Members that train together.

    Args:
        number: Its number, from 1; each world has a larger one than those before.
        members: Who trains, in the order of ranks.
        donor: The rank from which all take the state who do not hold it.
        step: How many steps are completed when it begins.

    Example:
        >>> world = World(2, (Member(4, "a", 11, "a:1"), Member(1, "b", 12, "b:1")), donor=0, step=30)
        >>> world.rank_of(1), world.numbers
        (1, (4, 1))
    """

    number: int
    members: tuple[Member, ...]
    donor: int
    step: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its members, in the order of ranks."""
        return tuple(member.number for member in self.members)

    def rank_of(self, number: int) -> int:
        """Return the rank of a member; `ValueError` when it is in no place of this world.

        Args:
            number: The number of the member.
        """
        return self.numbers.index(number)

    def encode(self) -> dict[str, Any]:
        """Return the world as an object for JSON."""
        return {
            "number": self.number,
            "members": [member.encode() for member in self.members],
            "donor": self.donor,
            "step": self.step,
        }

    @classmethod
    def decode(cls, fields: Any) -> World:
        """Return the world that `encode` wrote; `ValueError` when it is none."""
        if not isinstance(fields, Mapping) or fields.keys() != {"number", "members", "donor", "step"}:
            raise ValueError(f"{fields!r} is no world")
        number, donor, step, members = (fields[name] for name in ("number", "donor", "step", "members"))
        if [type(each) for each in (number, donor, step, members)] != [int, int, int, list]:
            raise ValueError(f"{fields!r} is no world")
        world = cls(number, tuple(Member.decode(member) for member in members), donor, step)
        if number < 1 or step < 0 or not 0 <= donor < len(members) or len(set(world.numbers)) < len(members):
            raise ValueError(f"{fields!r} is no world: a number is out of its range, or a member is there twice")
        return world
