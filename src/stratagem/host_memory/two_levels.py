"""Exchange of workers of several hosts: in the memory of each host, and through connections between them.

The workers of a host combine their arrays in its memory, each a share; those with the same share of every host combine
it through `Links`; and the workers of each host put the shares together in its memory. Programs do not know of it: they
stay what they are where a worker is replaced by one of another host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.lanes import bytes_at
from stratagem.host_memory.links import Links, Parcel
from stratagem.host_memory.plan import IN_BLOCKS, Plan, PlanPart

InMemory = Callable[[Plan, Sequence[int], Sequence[int]], None]
"""Does one phase in the memory of the host: function of the plan and the addresses of operands and results."""


class TwoLevels:
    """One exchange on some hosts: `lay`, `cross` and `collect`, in this order. Another thread may do the second.

    Where hosts have unequal numbers of workers, blocks do not divide among groups. What is gathered is then a sum of
    bytes in which each worker's place is zero on the others, and what is scattered is summed whole.

    Args:
        plan: The exchange as programs ask for it, of phase "combine".
        hosts: All workers by host.
        rank: Which of them this one is.
    """

    def __init__(self, plan: Plan, hosts: Hosts, rank: int, capacity: int) -> None:
        self._rank, self._size = rank, hosts.size
        self._asked = plan.parts
        self._is_even = hosts.even
        parts = [self._carried(part) for part in plan.parts]
        self._scatter = Plan(plan.name, parts, capacity, hosts, "scatter")
        self._collect = Plan(plan.name, parts, capacity, hosts, "collect")
        self._combined: list[np.ndarray] = []
        self._parcels = [
            Parcel(operation, dtype, np.zeros(size * (hosts.number if operation == "scatter" else 1), np.uint8))
            for (operation, dtype), size in self._scatter.parcels.items()
        ]

    def _carried(self, part: PlanPart) -> PlanPart:
        if self._is_even or part.operation not in IN_BLOCKS:
            return part
        if part.operation == "scatter":
            return PlanPart("sum", part.dtype, part.shape)
        return PlanPart("sum", np.dtype(np.uint8), (self._size * part.nbytes,))

    @property
    def signature(self) -> int:
        """The signature of what crosses."""
        return self._scatter.signature

    def lay(self, operands: Sequence[int], in_memory: InMemory) -> None:
        """Combine the values of this host, each worker its share. What arrays hold is not needed after that.

        Args:
            operands: Addresses of the arrays. Additional ones are ignored.
            in_memory: Does a phase in the memory of the host.
        """
        held: list[np.ndarray] = []
        sent = list(operands)
        for i, (asked, carried) in enumerate(zip(self._asked, self._scatter.parts, strict=True)):
            if asked.operation == "gather" and carried.operation == "sum" and asked.nbytes:
                places = np.zeros((self._size, asked.nbytes), np.uint8)
                places[self._rank] = bytes_at(operands[i], asked.nbytes)
                held.append(places)
                sent[i] = places.ctypes.data
        in_memory(self._scatter, sent, [parcel.data.ctypes.data for parcel in self._parcels])

    def cross(self, links: Links, check: Callable[[], object]) -> None:
        """Combine this worker's share with those of other hosts.

        Args:
            links: Connections to them.
            check: Called after each wait for them. It raises an error where there is nothing to wait for.

        Raises:
            PeerError: A worker is gone, or makes another exchange.
        """
        self._combined = links.combine(self.signature, self._parcels, check)

    def collect(self, results: Sequence[int], in_memory: InMemory) -> None:
        """Put the shares of this host together.

        Args:
            results: Addresses for the combined arrays, which may be those of the operands. Of what is scattered this
                worker's block lies in its place of the whole.
            in_memory: Does a phase in the memory of the host.
        """
        made = list(results)
        for i, part in enumerate(self._scatter.parts):
            if part.operation == "scatter":
                made[i] += self._rank * self._scatter.block(i)
        in_memory(self._collect, [each.ctypes.data for each in self._combined], made)
