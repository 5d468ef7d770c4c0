"""Advice to make training with many workers faster, each with the efficiency that the same model predicts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

from stratagem.plan.costs import Hosts, Link
from stratagem.plan.growth import Step, Workload, strong, usual_way, weak

WORTH: Final = 0.02
"""Advice that gains less efficiency is not given."""

MOST: Final = 4
"""The largest number of pieces of advice that are given."""


class Advice(NamedTuple):
    """Something to try.

    Args:
        what: What to do.
        efficiency: The efficiency that is predicted with it.
    """

    what: str
    efficiency: float


def advise(workload: Workload, workers: int, hosts: Hosts, faster: tuple[str, Link] | None = None) -> list[Advice]:
    """Return what to try, the best first; an empty list if nothing helps.

    Args:
        workload: What one worker does.
        workers: Number of workers.
        hosts: What they run on.
        faster: Name and costs of a faster network.

    Example:
        >>> hosts = Hosts(network=Link(0.001, 1e-9), memory=Link(), loopback=Link())
        >>> for advice in advise(Workload(gradient_bytes=40e6, step_seconds=0.07), 4, hosts):
        ...     print(f"{advice.efficiency:.0%}: {advice.what}")
        100%: give each worker 4 times the rows
        94%: accumulate gradients over 4 steps (gradient_accumulation_steps=4 of the optimizer)
    """
    now = weak(workload, workers, hosts).efficiency
    found = [Advice(what, step.efficiency) for what, step in _candidates(workload, workers, hosts, faster)]
    worth = [advice for advice in found if advice.efficiency >= now + WORTH]
    return sorted(worth, key=lambda advice: -advice.efficiency)[:MOST]


def most_useful(workload: Workload, workers: int, hosts: Hosts) -> int:
    """Return the number of workers, up to a limit, with which a global batch of fixed size takes the shortest step."""
    numbers = sorted({workers, *(1 << power for power in range(workers.bit_length()))})

    def seconds(number: int) -> float:
        return strong(workload, number, hosts).seconds

    return min(numbers, key=seconds)


def _candidates(
    workload: Workload, workers: int, hosts: Hosts, faster: tuple[str, Link] | None
) -> Iterator[tuple[str, Step]]:
    change = functools.partial(dataclasses.replace, workload)
    if workload.steps_per_update == 1:
        what = "accumulate gradients over 4 steps (gradient_accumulation_steps=4 of the optimizer)"
        yield what, weak(change(steps_per_update=4), workers, hosts)
    yield "give each worker 4 times the rows", weak(change(step_seconds=workload.of_rows(4)), workers, hosts)
    if usual_way(workers, hosts) == "memory":
        return
    what = 'send gradients in half the bytes (compression="bf16" of CommunicationOptions)'
    halved = change(gradient_bytes=workload.gradient_bytes / 2)
    yield what, weak(halved, workers, hosts, "ring")  # codes cannot be added up within a host
    if hosts.per_host > 1:
        alone = dataclasses.replace(hosts, per_host=1)
        what = f"start one worker on each host, with all its cores and {hosts.per_host} times the rows"
        yield what, weak(workload, hosts.number(workers), alone)
    if faster is not None:
        name, link = faster
        yield f"use a faster network ({name})", weak(workload, workers, dataclasses.replace(hosts, network=link))
