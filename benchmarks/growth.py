"""How training grows with workers: measured on 1, 2 and 4, fitted on part of it, predicted for the rest and for more.

    python benchmarks/growth.py [--write]

Measures sums by size, through memory and through Gloo, and the step of the MNIST network. As root, also between
network namespaces, hosts of their own with one worker each and with two: on fast cards what connections of our own
cost, on slow ones what is predicted. The costs of `stratagem.plan` are fitted to the sums at every second size; what
they predict of all else stands beside what was measured. README.md says how to read it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import namespaces
import numpy as np
from collectives import of_size
from fitting import Algorithm, Measured, fit
from pages import page, save

import stratagem
from stratagem import keras
from stratagem.plan.costs import Cost, Hosts, Link, flat_ring, memory, ring, two_levels
from stratagem.plan.growth import BACKWARD, Step, Workload, weak
from stratagem.plan.networks import SOCKETS, network, wire
from stratagem.strategy.base import Strategy
from stratagem.testing import run_workers

sys.path.insert(0, str(Path(__file__).parent / "mnist_cnn"))
from network import ROWS_PER_WORKER, compiled_network  # pyright: ignore[reportAttributeAccessIssue]

SIZES: Final = tuple(kib << 10 for kib in (1, 64, 256, 1024, 4096, 11264))
FEWER_SIZES: Final = tuple(kib << 10 for kib in (1, 64, 1024, 4096))
"""Between slow hosts the largest takes a quarter of a second."""

FITTED: Final = SIZES[::2]
"""The costs are fitted to these, and predict the others, the steps and the slow hosts."""

WORKERS: Final = (2, 4)
RATES: Final = (200e6, 1e9)
"""Bits a second of the slow cards. Faster ones would be limited by this machine's processor."""

FAST: Final = 10e9
"""Bits a second of the cards that the cost of connections of our own is fitted on."""

MANY: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
WAYS: Final = {"memory": ("AUTO", memory), "Gloo": ("RING", ring)}

PER_HOST: Final = 2
"""Workers on each of the slow hosts that are shared, of which there are two."""

SHARED_WAYS: Final = {"two levels": ("AUTO", two_levels), "one ring": ("RING", flat_ring)}
BETWEEN: Final = {"sockets": ("AUTO", ring, BACKWARD), "Gloo": ("RING", ring, 0.0)}
"""Ways between hosts with one worker each, and the share of computing beside which their gradients cross."""


class Compared(NamedTuple):
    """What was predicted and what was measured, in seconds."""

    what: str
    workers: int
    size: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class Found(NamedTuple):
    """What one group of workers measured, in seconds: sums by way and size, and the step by way."""

    sums: dict[str, dict[int, float]]
    steps: dict[str, float]


def on_worker(ways: Sequence[str], sizes: Sequence[int], calls: int, steps: int, cores: Sequence[int]) -> Found:
    """Measure on this worker, which binds itself to one core.

    Args:
        ways: Of communication, by the names of `CommunicationImplementation`.
        sizes: Of the sums, in bytes.
        calls: Of each size and way.
        steps: Of an epoch.
        cores: Those of this machine.
    """
    index = stratagem.cluster_resolver.TFConfigClusterResolver().task_id or 0
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    strategies = {}
    for way in ways:
        options = stratagem.CommunicationOptions(implementation=stratagem.CommunicationImplementation[way])
        strategies[way] = stratagem.MultiWorkerMirroredStrategy(None, options)
    meshes = {way: strategy.mesh for way, strategy in strategies.items()}
    times = {size: of_size(meshes, size, calls) for size in sizes}
    sums = {way: {size: statistics.median(times[size][way]) for size in sizes} for way in ways}
    return Found(sums, {way: step_seconds(strategy, steps) for way, strategy in strategies.items()})


def alone(steps: int, core: int) -> float:
    """Return the seconds of a step of one worker alone."""
    os.sched_setaffinity(0, {core})
    return step_seconds(stratagem.OneDeviceStrategy("cpu:0"), steps)


def step_seconds(strategy: Strategy, steps: int) -> float:
    """Return the seconds of a training step of the MNIST network."""
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model = compiled_network(keras)
    generator = np.random.default_rng(0)
    rows = steps * ROWS_PER_WORKER * replicas
    x = generator.random((rows, 28, 28), np.float32)
    y = generator.integers(0, 10, rows)
    return fit_seconds(model, x, y, ROWS_PER_WORKER * replicas)


def fit_seconds(model: keras.Model, x: np.ndarray, y: np.ndarray, batch_size: int) -> float:
    """Return the seconds of a step of `fit`: of three epochs the first does not count."""
    ends: list[float] = []
    noting = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    model.fit(x, y, batch_size=batch_size, epochs=3, shuffle=False, verbose=0, callbacks=[noting])
    return (ends[2] - ends[0]) / (2 * (len(y) // batch_size))


def crowded(link: Link, workers: int, cores: Sequence[int]) -> Link:
    """Return what a link costs where workers take turns on too few cores: who is to be woken waits for its turn."""
    turns = max(1.0, workers / len(cores))
    return dataclasses.replace(link, start=link.start * turns, latency=link.latency * turns)


def measure_here(calls: int, cores: Sequence[int]) -> dict[int, Found]:
    """Measure on this host, by workers."""
    ways = [way for way, _ in WAYS.values()]
    return {n: run_workers(on_worker, n, args=[ways, SIZES, calls, 40, cores])[0].value for n in WORKERS}


def measure_hosts(rate: float, calls: int, cores: Sequence[int]) -> tuple[dict[int, Found], Found]:
    """Measure between slow hosts: with one worker each, by workers; and two hosts with several workers each."""
    args = [[way for way, _ in SHARED_WAYS.values()], FEWER_SIZES, calls // 4, 4, cores]
    alone = {n: namespaces.run_on_hosts(on_worker, n, args, rate, 120)[0] for n in WORKERS}
    return alone, namespaces.run_on_hosts(on_worker, 2, args, rate, 120, PER_HOST)[0]


def measure_sockets(calls: int, cores: Sequence[int]) -> Link:
    """Return what connections of our own cost a host, without the wire."""
    args = [[way for way, _ in SHARED_WAYS.values()], SIZES, calls // 2, 1, cores]
    found = {n: namespaces.run_on_hosts(on_worker, n, args, FAST, 120)[0] for n in WORKERS}

    def in_turns(workers: int, nbytes: float, link: Link) -> Cost:
        return ring(workers, nbytes, crowded(link, workers, cores))

    link = fit([row for row in _rows(found, "AUTO") if row.nbytes in FITTED], in_turns, wire(FAST)).link
    return dataclasses.replace(link, seconds_per_byte=0.0)


def _rows(found: dict[int, Found], way: str) -> list[Measured]:
    return [Measured(n, size, seconds) for n, each in found.items() for size, seconds in each.sums[way].items()]


def fitted(rows: Sequence[Measured], algorithm: Algorithm, cores: Sequence[int]) -> Link:
    """Fit what a host costs to every second size; the others are left to be predicted."""

    def in_turns(workers: int, nbytes: float, link: Link) -> Cost:
        return algorithm(workers, nbytes, crowded(link, workers, cores))

    return fit([row for row in rows if row.nbytes in FITTED], in_turns).link


def judged(
    what: str, rows: Iterable[Measured], algorithm: Algorithm, host: Link, on: Link, cores: Sequence[int]
) -> list[Compared]:
    """Set predictions beside measurements.

    Args:
        what: Where they were made.
        rows: The measurements.
        algorithm: How they were made.
        host: What the host costs, on a core of its own.
        on: The wire, on top of that.
        cores: Those of this machine.
    """
    found = []
    host_is_fitted = on == Link() and "sum" in what
    for row in rows:
        link = on + crowded(host, row.workers, cores)
        predicted = algorithm(row.workers, row.nbytes, link).seconds
        size = f"{row.nbytes:,}" + (" (fitted)" if host_is_fitted and row.nbytes in FITTED else "")
        found.append(Compared(what, row.workers, size, row.seconds, predicted))
    return found


def compared(
    place: str,
    found: dict[int, Found],
    way: str,
    algorithm: Algorithm,
    work: Workload,
    host: Link,
    on: Link,
    cores: Sequence[int],
    overlap: float = 0.0,
) -> list[Compared]:
    """Set predictions for a place beside what was measured there. Workers that share a core compute in turns."""
    rows = judged(f"sum, {place}", _rows(found, way), algorithm, host, on, cores)
    for workers, each in found.items():
        measured = [Measured(workers, work.gradient_bytes, each.steps[way])]
        [exchange] = judged(f"step, {place}", measured, algorithm, host, on, cores)
        [of_cores] = judged(place, measured, algorithm, host, Link(), cores)
        computing = work.step_seconds * max(1.0, workers / len(cores))
        seen = max(of_cores.predicted, exchange.predicted - overlap * computing)
        rows.append(exchange._replace(predicted=computing + seen))
    return rows


def on_shared_hosts(
    cost: Callable[[int, float, Hosts], Cost], links: dict[str, Link], cores: Sequence[int]
) -> Algorithm:
    """Return what an exchange by several workers on each host costs, by what connects the hosts."""

    def algorithm(workers: int, nbytes: float, link: Link) -> Cost:
        memory_link, loopback = (crowded(links[name], workers, cores) for name in ("memory", "Gloo"))
        return cost(workers, nbytes, Hosts(link, memory_link, loopback, PER_HOST))

    return algorithm


def _gradient_bytes() -> int:
    return sum(4 * variable.value.size for variable in compiled_network(keras).trainable_variables)


def compared_table(rows: Sequence[Compared]) -> str:
    """Return predictions beside measurements, as Markdown."""
    lines = ["| what | workers | bytes | measured ms | predicted ms | error |", "| --- " * 6 + "|"]
    for row in rows:
        cells = [row.what, str(row.workers), row.size, f"{1e3 * row.measured:.3f}", f"{1e3 * row.predicted:.3f}"]
        lines.append(f"| {' | '.join([*cells, f'{row.error:+.0%}'])} |")
    for what in dict.fromkeys((row.what, row.workers) for row in rows):
        of_this = [abs(row.error) for row in rows if (row.what, row.workers) == what and "fitted" not in row.size]
        middle, most = statistics.median(of_this), max(of_this)
        lines.append(f"| **{what[0]}** | {what[1]} | all not fitted | | | median {middle:.0%}, most {most:.0%} |")
    return "\n".join(lines)


def prediction_table(work: Workload, host: dict[str, Link], per_host: int) -> str:
    """Return what is predicted for many workers on 10 GbE, as Markdown."""
    hosts = Hosts(
        network("10gbe", host["sockets"]), host["memory"], host["Gloo"], per_host, network("10gbe", host["Gloo"])
    )
    lines = ["| workers | hosts | ring ms | tree ms | two levels ms | efficiency, ring | tree | two levels |"]
    lines.append("| --- " * 8 + "|")
    for workers in MANY:
        steps: list[Step] = [weak(work, workers, hosts, way) for way in ("ring", "tree", "two levels")]
        cells = [str(workers), str(hosts.number(workers)), *(f"{1e3 * step.exchange.seconds:.1f}" for step in steps)]
        lines.append(f"| {' | '.join([*cells, *(f'{step.efficiency:.0%}' for step in steps)])} |")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=40, help="sums of each size; a quarter between slow hosts")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.calls < 16:
        parser.error("--calls 16 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # not before the hosts are removed
    cores = sorted(os.sched_getaffinity(0))
    work = Workload(_gradient_bytes(), run_workers(alone, 1, args=[70, cores[0]])[0].value)
    here = measure_here(arguments.calls, cores)
    links = {name: fitted(_rows(here, way), algorithm, cores) for name, (way, algorithm) in WAYS.items()}
    rows = []
    for name, (way, algorithm) in WAYS.items():
        rows += compared(name, here, way, algorithm, work, links[name], Link(), cores)
    rates = RATES if namespaces.possible() else ()
    links["sockets"] = measure_sockets(arguments.calls, cores) if rates else SOCKETS
    for rate in rates:
        of_one, of_two = measure_hosts(rate, arguments.calls, cores)
        place, on = f"hosts with {rate / 1e6:.0f} Mbit/s", wire(rate)
        for name, (way, algorithm, overlap) in BETWEEN.items():
            rows += compared(f"{place}, {name}", of_one, way, algorithm, work, links[name], on, cores, overlap)
        for (name, (way, cost)), (host, (_, _, overlap)) in zip(SHARED_WAYS.items(), BETWEEN.items(), strict=True):
            algorithm = on_shared_hosts(cost, links, cores)
            several = {2 * PER_HOST: of_two}
            rows += compared(f"two {place}, {name}", several, way, algorithm, work, links[host], on, cores, overlap)
    facts = [
        f"fitted to the sums of {', '.join(map(str, FITTED))} bytes, by {name}: {link}" for name, link in links.items()
    ]
    facts += [f"one worker's step: {1e3 * work.step_seconds:.2f} ms"]
    facts += [] if rates else ["no network namespaces could be made: several hosts were not measured"]
    tables = [compared_table(rows)]
    for per_host in (1, 8):
        title = f"Predicted for the MNIST network on 10 GbE, {per_host} workers on a host"
        tables += [f"## {title}", prediction_table(work, links, per_host)]
    text = page("Growth with workers", facts, "\n\n".join(tables))
    print(text)
    if arguments.write:
        print(f"written: {save('growth', text)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
