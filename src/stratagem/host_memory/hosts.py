"""Workers by host, and which of them combine values with other hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Hosts:
    """The workers of each host.

    The combined values of the workers of a host are cut into shares. A share belongs to one worker of each host, and
    these workers combine it. So all hosts use the same number of shares. If they have unequal numbers of workers, some
    workers carry no share. Arrays that are divided among all workers in equal blocks need even hosts: the share of a
    worker is then the blocks of its group.

    Args:
        workers: The indices of the workers of each host, in order.
    """

    workers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Hosts:
        """Return the hosts from the name of each worker's host.

        Example:
            >>> Hosts.of(["one", "one", "other", "one", "other"])
            Hosts(workers=((0, 1, 3), (2, 4)))
        """
        found: dict[str, list[int]] = {}
        for worker, name in enumerate(names):
            found.setdefault(name, []).append(worker)
        return cls(tuple(map(tuple, found.values())))

    @property
    def number(self) -> int:
        """Number of hosts."""
        return len(self.workers)

    @property
    def size(self) -> int:
        """Number of workers of all hosts."""
        return sum(map(len, self.workers))

    @property
    def even(self) -> bool:
        """Whether all hosts have the same number of workers, so that each worker is in a group."""
        return all(len(host) == self.sharers for host in self.workers)

    @property
    def sharers(self) -> int:
        """Number of workers on each host that carry a share: as many as the smallest host has."""
        return min(map(len, self.workers))

    @property
    def groups(self) -> list[list[int]]:
        """The workers that combine a share; a worker without a share is alone.

        Example:
            >>> Hosts(((0, 1, 3), (2, 4))).groups
            [[0, 2], [1, 4], [3]]
        """
        sharing = [list(group) for group in zip(*self.workers, strict=False)]
        return sharing + [[worker] for host in self.workers for worker in host[self.sharers :]]

    @property
    def ring(self) -> list[int]:
        """The workers in an order in which neighbours, where possible, are of different hosts.

        Example:
            >>> Hosts(((0, 1), (2, 3))).ring
            [0, 2, 1, 3]
        """
        return [worker for group in self.groups for worker in group]

    def group_of(self, worker: int) -> list[int]:
        """Return the workers of other hosts that combine a share with a worker, and it among them."""
        return next(group for group in self.groups if worker in group)

    def around(self, worker: int) -> tuple[int, ...]:
        """Return the workers of the host that a worker is on, itself included."""
        return next(host for host in self.workers if worker in host)
