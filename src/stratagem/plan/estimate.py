"""Estimate a step's time on devices that are not here, from its arithmetic and bytes and the published peaks."""

from __future__ import annotations

from dataclasses import dataclass

from stratagem.plan.compiled_step import CompiledStep
from stratagem.plan.costs import Link, ring


@dataclass(frozen=True)
class Estimate:
    """Seconds of a step on each device.

    Args:
        computing: Seconds of the products, at the published peak.
        moving: Seconds of all bytes through the device's memory, at the published bandwidth.
        exchanging: Seconds of sums among the devices of a host or slice, and between hosts, at the links' bandwidth.
        hidden: Share of the exchange during which the schedule has enough bytes to move through memory.
    """

    computing: float
    moving: float
    exchanging: float
    hidden: float

    @property
    def alone(self) -> tuple[float, float]:
        """Shortest and longest time of a step without exchange: bytes move while products are computed, or after."""
        return max(self.computing, self.moving), self.computing + self.moving

    @property
    def shortest(self) -> float:
        """Time of a step if what the schedule hides is hidden, and nothing else costs time."""
        best, _ = self.alone
        return best + max(self.exchanging * (1 - self.hidden), self.exchanging - best)

    @property
    def longest(self) -> float:
        """Time of a step if nothing overlaps."""
        return self.alone[1] + self.exchanging

    @property
    def efficiency(self) -> tuple[float, float]:
        """Lowest and highest efficiency, relative to as many devices that exchange nothing."""
        best, worst = self.alone
        each = (best / (best + self.exchanging), worst / self.longest, best / self.shortest)
        return min(each), max(each)


def estimated(step: CompiledStep, network: Link) -> Estimate | None:
    """Return the estimate of a compiled step; None if the peaks of its device are not known, or it does not fit.

    Args:
        step: The step.
        network: The link between hosts.
    """
    hardware, schedule = step.place.hardware, step.schedule
    if schedule is None or not hardware.bandwidth:
        return None
    computing = sum(number / hardware.peak(dtype) for dtype, number in step.operations.items())
    times = [
        (each.times * _exchange(step, each.nbytes, network), each.times * each.moved / hardware.bandwidth)
        for each in schedule.collectives
    ]
    exchanging, hidden = sum(exchange for exchange, _ in times), sum(min(both) for both in times)
    return Estimate(
        computing=computing,
        moving=schedule.moved / hardware.bandwidth,
        exchanging=exchanging,
        hidden=hidden / exchanging if exchanging else 0.0,
    )


def _exchange(step: CompiledStep, nbytes: float, network: Link) -> float:
    """Return the seconds of a collective: a ring within each host, and one between hosts for all its bytes."""
    within = Link(seconds_per_byte=1 / step.place.hardware.link)
    per_host = step.devices // step.hosts
    return ring(per_host, nbytes, within).seconds + ring(step.hosts, nbytes, network).seconds
