"""Sums and training steps between two hosts, through connections of our own and by Gloo.

    python benchmarks/between_hosts.py [--rates 0.2 1 10] [--write]

The hosts are network namespaces of this machine, whose cards carry so many Gbit/s in each direction. Both ways take
turns in the same processes. The bound of a step is what its gradients take on the card, or the same step of one worker
alone, whichever is longer. Linux, root and iproute2 only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import namespaces
from growth import alone, compiled_network, on_worker
from pages import page, save
from rounds import say

from stratagem import keras
from stratagem.testing import run_workers

SIZES = (1 << 10, 11_280_000)
"""Bytes of a sum; the second are those of the gradients of the step."""

WAYS = {"AUTO": "sockets", "RING": "Gloo"}
STEPS = 8


def measured(rate: float, per_host: int, cores: Sequence[int]) -> list[list[float]]:
    """Return the milliseconds of sums and of a step by both ways, sizes first.

    Args:
        rate: Bits a second of each card.
        per_host: Workers on each host.
        cores: Of this machine.
    """
    args = [list(WAYS), SIZES, 8, STEPS, cores]
    found = namespaces.run_on_hosts(on_worker, 2, args, rate, 300, per_host)[0]
    return [[*(1e3 * found.sums[way][size] for size in SIZES), 1e3 * found.steps[way]] for way in WAYS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.2, 1.0, 10.0], help="Gbit/s of each card")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    options = parser.parse_args(arguments)
    if not namespaces.possible():
        print("This process may not make network namespaces.", file=sys.stderr)
        return 1
    cores = sorted(os.sched_getaffinity(0))
    own = 1e3 * run_workers(alone, 1, args=[STEPS, cores[0]])[0].value
    nbytes = 4 * compiled_network(keras).count_params()
    heads = ["Gbit/s", "workers", "sum of 1 KB", "Gloo", "sum of 11 MB", "Gloo", "step", "Gloo", "ratio", "bound"]
    lines = [f"| {' | '.join(heads)} |", "| ---: |" + " ---: |" * (len(heads) - 1)]
    for rate in options.rates:
        for per_host in (1, 2):
            sockets, gloo = measured(1e9 * rate, per_host, cores)
            bound = max(own * max(1, 2 * per_host / len(cores)), 8e3 * nbytes / (1e9 * rate))
            pairs = [f"{one:.3g} | {other:.3g}" for one, other in zip(sockets, gloo, strict=True)]
            cells = [f"{rate:g}", f"2 x {per_host}", *pairs, f"{sockets[2] / gloo[2]:.2f}", f"{bound:.3g}"]
            lines.append(f"| {' | '.join(cells)} |")
            say(lines[-1])
    facts = [f"milliseconds; gradients of {nbytes / 1e6:.1f} MB; a step of one worker alone takes {own:.1f} ms"]
    text = page("Sums and steps between two hosts", facts, "\n".join(lines))
    print(text)
    if options.write:
        say(f"written: {save('between_hosts', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
