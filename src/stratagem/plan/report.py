"""The report of `stratagem plan`, for a person at a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from stratagem.plan.advice import advise, most_useful
from stratagem.plan.costs import Hosts, Link
from stratagem.plan.growth import Step, Workload, strong, weak

_WIDTH: Final = 100
_COLUMNS: Final = (
    "workers",
    "hosts",
    "sum by",
    "compute ms",
    "wait ms",
    "exchange ms",
    "step ms",
    "weak",
    "strong",
    "ring",
    "tree",
)


def report(
    workload: Workload,
    numbers: Sequence[int],
    hosts: Hosts,
    name: str,
    faster: tuple[str, Link] | None = None,
) -> str:
    """Return a table of steps, what bounds the largest group of workers, and what to try.

    Args:
        workload: What one worker does.
        numbers: Numbers of workers.
        hosts: What they run on.
        name: Name of the network.
        faster: Name and costs of a faster network.

    Example:
        >>> hosts = Hosts(network=Link(0.001, 1e-9), memory=Link(), loopback=Link())
        >>> print(report(Workload(40e6, 0.07), [2, 4], hosts, "this network"))  # doctest: +ELLIPSIS
        40.0 MB of gradients; a step of one worker alone takes 70.0 ms.
        <BLANKLINE>
        workers  hosts      sum by  compute ms  wait ms  exchange ms  step ms  weak  strong  ring  tree
              2      2  two levels        70.0      0.0          0.0     70.0  100%     65%   62%   62%
              4      4  two levels        70.0      0.0         19.3     89.3   78%     24%   51%   52%
        ...
    """
    steps = [weak(workload, workers, hosts) for workers in numbers]
    rows = [_COLUMNS, *(_cells(workload, step, hosts) for step in steps)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    notes = [
        "weak: efficiency if every worker has the rows of one worker; strong: if all workers share these rows. "
        "ring, tree: like weak, with one ring or tree through all workers.",
        _verdict(workload, steps[-1], hosts, name),
    ]
    wrapped = [line for note in notes for line in textwrap.wrap(note, _WIDTH, subsequent_indent="  ")]
    found = advise(workload, steps[-1].workers, hosts, faster)
    tries = [f"  {advice.efficiency:4.0%}  {advice.what}" for advice in found]
    if tries:
        tries = ["", "Try, with the efficiency to expect:", *tries]
    return "\n".join([_what(workload), "", *(line.rstrip() for line in lines), "", *wrapped, *tries])


def _what(workload: Workload) -> str:
    spread = f", give or take {workload.spread:.1%}" if workload.spread else ""
    fixed = f" ({1e3 * workload.fixed_seconds:.1f} of it independent of the rows)" if workload.fixed_seconds else ""
    return (
        f"{workload.gradient_bytes / 1e6:.1f} MB of gradients; "
        f"a step of one worker alone takes {1e3 * workload.step_seconds:.1f} ms{spread}{fixed}."
    )


def _cells(workload: Workload, step: Step, hosts: Hosts) -> tuple[str, ...]:
    workers = step.workers
    times = (step.computing, step.waiting, step.exchange.seconds, step.seconds)
    shares = (
        step.efficiency,
        strong(workload, workers, hosts).efficiency,
        weak(workload, workers, hosts, "ring").efficiency,
        weak(workload, workers, hosts, "tree").efficiency,
    )
    numbers = (str(workers), str(hosts.number(workers)), step.way if workers > 1 else "-")
    return (*numbers, *(f"{1e3 * seconds:.1f}" for seconds in times), *(f"{share:.0%}" for share in shares))


def _verdict(workload: Workload, step: Step, hosts: Hosts, name: str) -> str:
    where = f"on {name}" if hosts.number(step.workers) > 1 else "on one host"
    said = f"At {step.workers} workers {where} expect {step.efficiency:.0%} efficiency: {step.bound}."
    best = most_useful(workload, step.workers, hosts)
    if best < step.workers:
        said += f" With a global batch of fixed size, {best} workers take the shortest step."
    return said
