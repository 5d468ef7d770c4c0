"""Predict the time of a step on n workers, from its time on one worker and the cost of an exchange."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from stratagem.plan.costs import NOTHING, Cost, Hosts, flat_ring, flat_tree, memory, two_levels

Way = Literal["memory", "ring", "tree", "two levels"]
"""How the workers exchange."""

GOOD: Final = 0.9
"""At this efficiency and above, computing bounds a step."""

BACKWARD: Final = 2 / 3
"""Share of a step that the backward pass takes, roughly: twice as many products as the forward pass."""

_REACH: Final = 9.0
"""Standard deviations beyond which the slowest of any number of workers is not looked for."""

_POINTS: Final = 2000
"""Points of the integral, which is smooth and zero at both ends: the trapezoid rule is exact to 1e-9 here."""


@dataclass(frozen=True)
class Workload:
    """The work of one worker in a step, and the bytes it exchanges.

    Args:
        gradient_bytes: Bytes of the gradients.
        step_seconds: Time of a step on one worker alone, with its rows.
        fixed_seconds: The part of it that does not depend on the number of rows: the update, starting a program.
        spread: Standard deviation of a worker's step time, as a share of it; each worker's is its own.
        steps_per_update: Steps whose gradients are accumulated before they are exchanged
            (`gradient_accumulation_steps` of an optimizer).
        bytes_per_pack: As in `CommunicationOptions`; 0 is one pack.
        overlap: Share of the computing beside which gradients are exchanged; None takes what Stratagem does:
            between hosts they cross beside the backward pass, within a host and through Gloo after it.
    """

    gradient_bytes: float
    step_seconds: float
    fixed_seconds: float = 0.0
    spread: float = 0.0
    steps_per_update: int = 1
    bytes_per_pack: float = 0.0
    overlap: float | None = None

    def of_rows(self, share: float) -> float:
        """Return the time to compute a step with a share of the rows, or a multiple of them."""
        return self.fixed_seconds + (self.step_seconds - self.fixed_seconds) * share


@dataclass(frozen=True)
class Step:
    """One step on several workers. Times are in seconds.

    Args:
        workers: Number of workers.
        way: How they exchange.
        computing: Time of computing, as on one worker.
        waiting: Time of waiting for the slowest worker.
        exchange: The part of the exchange that is not hidden.
        alone: One worker's step with the rows of one worker (weak growth) or of all workers (strong growth).
        rows: Rows of this step, as a multiple of those that `alone` was for.
    """

    workers: int
    way: Way
    computing: float
    waiting: float
    exchange: Cost
    alone: float
    rows: float

    @property
    def seconds(self) -> float:
        """Time of the whole step."""
        return self.computing + self.waiting + self.exchange.seconds

    @property
    def efficiency(self) -> float:
        """Rows a second, relative to as many workers that neither exchange nor wait for each other."""
        return self.rows * self.alone / (self.workers * self.seconds)

    @property
    def bound(self) -> str:
        """The cause that keeps the efficiency down."""
        if self.efficiency >= GOOD:
            return "compute-bound"
        lost = {
            "communication-bound, by bytes": self.exchange.bytes,
            "communication-bound, by latency": self.exchange.messages,
            "bound by the slowest worker": self.waiting,
            "bound by the part of a step that does not shrink with its rows": self.computing
            - self.rows * self.alone / self.workers,
        }
        return max(lost, key=lost.__getitem__)


def weak(workload: Workload, workers: int, hosts: Hosts, way: Way | None = None) -> Step:
    """Predict a step in which every worker has the rows of one worker alone.

    Args:
        workload: What one worker does.
        workers: Number of workers.
        hosts: What they run on.
        way: How they exchange; None takes what Stratagem does (`usual_way`).

    Example:
        >>> from stratagem.plan.costs import Link
        >>> hosts = Hosts(network=Link(0.001, 1e-9), memory=Link(), loopback=Link())
        >>> step = weak(Workload(gradient_bytes=40e6, step_seconds=0.07), 4, hosts)
        >>> round(step.seconds, 6), round(step.efficiency, 3), step.bound
        (0.089333, 0.784, 'communication-bound, by bytes')
    """
    return _step(workload, workload.step_seconds, workers, hosts, way, float(workers))


def strong(workload: Workload, workers: int, hosts: Hosts, way: Way | None = None) -> Step:
    """Predict a step in which the workers share the rows of one worker. The arguments are those of `weak`."""
    return _step(workload, workload.of_rows(1 / workers), workers, hosts, way, 1.0)


def usual_way(workers: int, hosts: Hosts) -> Way:
    """Return how Stratagem's workers exchange: through memory within a host, and at two levels between hosts."""
    return "memory" if hosts.number(workers) == 1 else "two levels"


def exchange(way: Way, workers: int, nbytes: float, hosts: Hosts, bytes_per_pack: float = 0.0) -> Cost:
    """Return the cost of a sum over all workers.

    Args:
        way: How they exchange.
        workers: Number of workers.
        nbytes: Size of what they exchange.
        hosts: What they run on.
        bytes_per_pack: Size of the packs that go one after another; 0 is one pack. Memory takes all packs at once.
    """
    if workers == 1:
        return NOTHING
    of_pack = _WAYS[way]
    full, rest = divmod(nbytes, bytes_per_pack) if bytes_per_pack and way in ("ring", "tree") else (0, nbytes)
    cost = of_pack(workers, bytes_per_pack, hosts).times(full) if full else NOTHING
    return cost.then(of_pack(workers, rest, hosts)) if rest or not full else cost


def _step(workload: Workload, computing: float, workers: int, hosts: Hosts, way: Way | None, rows: float) -> Step:
    way = way or usual_way(workers, hosts)
    cost = exchange(way, workers, workload.gradient_bytes, hosts, workload.bytes_per_pack)
    overlap, least = workload.overlap, 0.0
    if overlap is None and way == "two levels":
        overlap, least = BACKWARD, exchange(way, workers, workload.gradient_bytes, _without_wire(hosts)).seconds
    seen = max(least, cost.seconds - (overlap or 0.0) * computing) / (cost.seconds or 1.0)
    cost = cost.times(seen / workload.steps_per_update)
    waiting = computing * workload.spread * slowest(workers)
    return Step(workers, way, computing, waiting, cost, workload.step_seconds, rows)


def _without_wire(hosts: Hosts) -> Hosts:
    """Return hosts whose exchange takes what its copies and sums take: the cores that compute make them."""
    return dataclasses.replace(hosts, network=dataclasses.replace(hosts.network, latency=0.0, seconds_per_byte=0.0))


@functools.cache
def slowest(workers: int) -> float:
    """Return the expected maximum of a number of independent standard normal values.

    The whole group waits for its slowest worker: with standard deviation s, a step is longer by s times this. It is the
    integral of `1 - F(x)**n - F(-x)**n` over positive x, with F the normal distribution.

    Example:
        >>> [round(slowest(workers), 3) for workers in (1, 2, 3, 10, 1000)]
        [0.0, 0.564, 0.846, 1.539, 3.241]
    """
    normal = statistics.NormalDist()
    width = _REACH / _POINTS
    values = [1 - normal.cdf(i * width) ** workers - normal.cdf(-i * width) ** workers for i in range(_POINTS + 1)]
    return abs(width * (math.fsum(values) - (values[0] + values[-1]) / 2))


_WAYS: Final[dict[Way, Callable[[int, float, Hosts], Cost]]] = {
    "memory": lambda workers, nbytes, hosts: memory(workers, nbytes, hosts.memory),
    "ring": flat_ring,
    "tree": flat_tree,
    "two levels": two_levels,
}
