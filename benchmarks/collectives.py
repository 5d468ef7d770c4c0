"""Time of one sum over all workers of this machine, by size: through memory and through Gloo, side by side.

    python benchmarks/collectives.py [--workers 2 4] [--calls 200] [--write]

The same processes do both, in turns, each on a core of its own as far as there are cores. A call is a compiled program
with one `psum` and nothing else, and ends when its result is there. README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from figures import Figure
from jax import lax
from jax.sharding import PartitionSpec
from pages import page, save
from plots import BLUE, ORANGE, Line, lines

import stratagem
from stratagem.mesh.mesh import AXIS, ReplicaMesh
from stratagem.program.compile import compiled
from stratagem.testing import run_workers

SIZES = tuple(kib << 10 for kib in (1, 16, 64, 128, 256, 1024, 4096, 11264, 16384, 65536))
"""In bytes; 11 MB are the gradients of the tutorials' network."""

TURNS = 4
"""Of each size the two take so many turns."""

WAYS = ("AUTO", "RING")

NAMES = {"AUTO": "memory", "RING": "Gloo"}

Times = dict[int, dict[str, list[float]]]
"""Of each size and way, the seconds of each call."""


def measured(sizes: Sequence[int], calls: int, cores: Sequence[int]) -> Times:
    """Measure on this worker.

    Args:
        sizes: In bytes.
        calls: Of each size and way; fewer of the largest.
        cores: Those of this machine; a worker binds itself to one.
    """
    index = stratagem.cluster_resolver.TFConfigClusterResolver().task_id or 0
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    meshes = {}
    for way in WAYS:
        options = stratagem.CommunicationOptions(implementation=stratagem.CommunicationImplementation[way])
        meshes[way] = stratagem.MultiWorkerMirroredStrategy(None, options).mesh
    if meshes["AUTO"].memory is None:
        raise SystemExit("The workers have no memory in common.")
    return {size: of_size(meshes, size, max(8, min(calls, (1 << 31) // size // TURNS))) for size in sizes}


def of_size(meshes: dict[str, ReplicaMesh], size: int, calls: int) -> dict[str, list[float]]:
    """Return the seconds of each call, with each mesh."""
    times: dict[str, list[float]] = {way: [] for way in meshes}
    programs = {way: summing(mesh) for way, mesh in meshes.items()}
    mesh = meshes["RING"]
    value = mesh.shard_blocks(np.ones((1, size // 4), np.float32))
    for way in meshes:
        jax.block_until_ready(programs[way](value))
    for turn in range(TURNS):
        for way in list(meshes)[:: -1 if turn % 2 else 1]:
            for call in range(2 + calls // TURNS):
                begin = time.perf_counter()
                jax.block_until_ready(programs[way](value))
                if call >= 2:  # the first ones follow the other way's
                    times[way].append(time.perf_counter() - begin)
    return times


def summing(mesh: ReplicaMesh) -> Callable[[jax.Array], jax.Array]:
    """Compile the sum of each replica's row."""
    spec = PartitionSpec(AXIS)
    return compiled(mesh, lambda x: lax.psum(x * 2, AXIS), (spec,), PartitionSpec(), name="sum")


def table(times: dict[int, Times]) -> str:
    """Return the results as a Markdown table.

    Args:
        times: Of each number of workers.
    """
    columns = ["workers", "bytes"]
    for name in NAMES.values():
        columns += [f"{name}: median ms", "p99 ms", "most ms", "GB/s"]
    lines = [f"| {' | '.join([*columns, 'times as fast'])} |", "| --- " * (len(columns) + 1) + "|"]
    for workers, sizes in times.items():
        for size, ways in sizes.items():
            cells = [str(workers), f"{size:,}"]
            for way in WAYS:
                ms = sorted(1e3 * each for each in ways[way])
                middle = statistics.median(ms)
                late = ms[min(len(ms) - 1, round(0.99 * len(ms)))]
                cells += [f"{middle:.3f}", f"{late:.2f}", f"{ms[-1]:.1f}", f"{size / middle / 1e6:.2f}"]
            ratio = statistics.median(ways["RING"]) / statistics.median(ways["AUTO"])
            lines.append(f"| {' | '.join([*cells, f'{ratio:.1f}'])} |")
    return "\n".join(lines)


def summary(times: Mapping[int, Times]) -> list[Figure]:
    """Return what the suite shows: the smallest sum, the largest, and the slowest call of all up to 1 MiB."""
    found = []
    for workers, sizes in times.items():
        heading = f"sum over {workers} workers of this machine"
        small, large = min(sizes), max(sizes)
        for size in (small, large):
            ours, gloo = (1e3 * statistics.median(sizes[size][way]) for way in WAYS)
            found.append(Figure(heading, named(size), ours, "ms", ours / gloo, "Gloo"))
        ours, gloo = (large / statistics.median(sizes[large][way]) / 1e9 for way in WAYS)
        found.append(Figure(heading, f"bandwidth: {named(large)} by its time", ours, "GB/s", ours / gloo, "Gloo"))
        slowest = [max(max(ways[way]) for size, ways in sizes.items() if size <= 1 << 20) * 1e3 for way in WAYS]
        what = "slowest call of all with at most 1 MiB"
        found.append(Figure(heading, what, slowest[0], "ms", slowest[0] / slowest[1], "Gloo"))
    return found


def draw(times: Mapping[int, Times], file: Path) -> None:
    """Draw the medians by size."""
    drawn = []
    for way, colour in zip(WAYS, (BLUE, ORANGE), strict=True):
        for workers, sizes in times.items():
            medians = [1e3 * statistics.median(ways[way]) for ways in sizes.values()]
            label = f"{NAMES[way]}, {workers} workers"
            drawn.append(Line(label, list(sizes), medians, colour, dashed=workers != min(times)))
    ticks: dict[float, str] = {}
    for size in sorted({size for sizes in times.values() for size in sizes}):
        if size > 2 * max(ticks, default=0):  # the names of closer ones would lie over one another
            ticks[size] = named(size)
    title = "One sum over the workers of one machine"
    lines(file, title, "size of the sum", "median, ms", drawn, x_ticks=ticks, logarithmic=True)


def named(size: int) -> str:
    """Return a number of bytes as people say it."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def of_workers(numbers: Sequence[int], sizes: Sequence[int], calls: int) -> dict[int, Times]:
    """Measure with so many workers, as the first of them sees it."""
    cores = sorted(os.sched_getaffinity(0))
    return {
        workers: run_workers(measured, workers, args=[sizes, calls, cores], timeout_seconds=600)[0].value
        for workers in numbers
    }


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows, and draw it in a folder."""
    times = of_workers((2, 4), [size for size in SIZES if size <= 11264 << 10], calls=100)
    draw(times, plots / "collectives.svg")
    return summary(times)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="numbers of workers")
    parser.add_argument("--calls", type=int, default=200, help="sums of each size, fewer of the largest")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in bytes")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if min(arguments.workers) < 2 or arguments.calls < TURNS or min(arguments.sizes) < 4:
        parser.error(f"--workers 2 or more, --calls {TURNS} or more, --sizes 4 or more")
    times = of_workers(arguments.workers, arguments.sizes, arguments.calls)
    facts = [f"{arguments.calls} sums of float32 of each size, fewer of the largest; as the first worker saw them"]
    text = page("Sums over the workers of one machine", facts, table(times))
    print(text)
    if arguments.write:
        print(f"written: {save('collectives', text)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
