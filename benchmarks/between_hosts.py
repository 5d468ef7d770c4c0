"""Sums and training steps between two hosts, through connections of our own and by Gloo.

    python benchmarks/between_hosts.py [--rates 0.2 1 10] [--write]

The hosts are network namespaces of this machine, whose cards carry so many Gbit/s in each direction. Both ways take
turns in the same processes. Steps are those of the MNIST network, which has almost all of its gradients in one array,
and of ResNet-18 on images of 64x64, whose gradients come one after the other. The bound of a step is what its gradients
take on the card, or the same step of one worker alone, whichever is longer. Linux, root and iproute2 only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import namespaces
from growth import alone, compiled_network, fit_seconds, on_worker
from pages import page, save
from processes import HERE
from rounds import say

import stratagem
from stratagem import keras
from stratagem.testing import run_workers

sys.path.insert(0, str(HERE / "networks"))

from catalogue import NETWORKS, compiled, drawn

RESNET = NETWORKS["resnet18"]

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


def resnet_on_worker(ways: Sequence[str], cores: Sequence[int]) -> dict[str, float]:
    """Return the seconds of a step of ResNet-18 by each way, on this worker, which binds itself to one core."""
    index = stratagem.cluster_resolver.TFConfigClusterResolver().task_id or 0
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    implementation = stratagem.CommunicationImplementation
    options = {way: stratagem.CommunicationOptions(implementation=implementation[way]) for way in ways}
    return {way: _resnet_seconds(stratagem.MultiWorkerMirroredStrategy(None, options[way])) for way in ways}


def resnet_alone(core: int) -> float:
    """Return the seconds of a step of one worker alone."""
    os.sched_setaffinity(0, {core})
    return _resnet_seconds(stratagem.OneDeviceStrategy("cpu:0"))


def _resnet_seconds(strategy: stratagem.Strategy) -> float:
    with strategy.scope():
        model = compiled(keras, RESNET)
    data = drawn(RESNET, strategy.num_replicas_in_sync)
    return fit_seconds(model, data["x"], data["y"], RESNET.rows * strategy.num_replicas_in_sync)


def row(rate: float, per_host: int, ours: Sequence[float], gloo: Sequence[float], bound: float) -> str:
    """Return a row of a table: pairs of ours and Gloo's, the ratio of the last pair, and the bound."""
    pairs = [f"{one:.3g} | {other:.3g}" for one, other in zip(ours, gloo, strict=True)]
    cells = [f"{rate:g}", f"2 x {per_host}", *pairs, f"{ours[-1] / gloo[-1]:.2f}", f"{bound:.3g}"]
    say(f"| {' | '.join(cells)} |")
    return f"| {' | '.join(cells)} |"


def table(heads: Sequence[str], rates: Sequence[float], of: Callable[[float, int], str]) -> str:
    """Return a table with rows for one and two workers of each host."""
    lines = [f"| {' | '.join(heads)} |", "| ---: |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *(of(rate, per_host) for rate in rates for per_host in (1, 2))])


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
    resnets_own = 1e3 * run_workers(resnet_alone, 1, args=[cores[0]])[0].value
    nbytes, resnets = 4 * compiled_network(keras).count_params(), 4 * compiled(keras, RESNET).count_params()

    def bound(rate: float, per_host: int, step: float, size: int) -> float:
        return max(step * max(1, 2 * per_host / len(cores)), 8e3 * size / (1e9 * rate))

    def of_mnist(rate: float, per_host: int) -> str:
        ours, gloo = measured(1e9 * rate, per_host, cores)
        return row(rate, per_host, ours, gloo, bound(rate, per_host, own, nbytes))

    def of_resnet(rate: float, per_host: int) -> str:
        args = [list(WAYS), cores]
        found = namespaces.run_on_hosts(resnet_on_worker, 2, args, 1e9 * rate, 500, per_host)[0]
        ours, gloo = ([1e3 * found[way]] for way in WAYS)
        return row(rate, per_host, ours, gloo, bound(rate, per_host, resnets_own, resnets))

    heads = ["Gbit/s", "workers", "sum of 1 KB", "Gloo", "sum of 11 MB", "Gloo", "step", "Gloo", "ratio", "bound"]
    tables = [table(heads, options.rates, of_mnist), table([*heads[:2], *heads[6:]], options.rates, of_resnet)]
    facts = [
        f"milliseconds; gradients of {nbytes / 1e6:.1f} MB; a step of one worker alone takes {own:.1f} ms",
        f"second table: ResNet-18, gradients of {resnets / 1e6:.1f} MB; a step alone takes {resnets_own:.0f} ms",
    ]
    text = page("Sums and steps between two hosts", facts, "\n\n".join(tables))
    print(text)
    if options.write:
        say(f"written: {save('between_hosts', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
