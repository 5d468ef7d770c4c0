"""Time to make each of the networks of `networks/`, as plain Keras and in the scope of a strategy, nothing compiled.

Run `python benchmarks/making.py [--only NAME ...] [--write]`. Each is made in a process of its own on one core; what
is timed begins behind the imports, and ends when all weights are there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import nullcontext

from pages import page, save
from processes import HERE

from stratagem.core import environment

sys.path.insert(0, str(HERE / "networks"))
from catalogue import NETWORKS

PLAIN, SCOPE = "plain Keras", "in a scope"
LIMIT_SECONDS = 300.0


def make(name: str, where: str) -> None:
    """Be the process that makes a network: print how many weights it has, and the seconds.

    Args:
        name: Of the network.
        where: PLAIN or SCOPE.
    """
    import jax
    import keras

    scope = nullcontext
    if where == SCOPE:
        import stratagem

        scope = stratagem.OneDeviceStrategy("cpu:0").scope
    builder = NETWORKS[name].make
    assert builder is not None
    begin = time.perf_counter()
    with scope():
        model = builder(keras)
    jax.block_until_ready([weight.value for weight in model.weights])
    print("MADE", model.count_params(), time.perf_counter() - begin)


def made(name: str, where: str) -> tuple[int, float]:
    """Return what `make` says in a process of its own.

    Args:
        name: Of the network.
        where: PLAIN or SCOPE.
    """
    paths = [str(HERE), str(HERE / "networks"), os.environ.get("PYTHONPATH", "")]
    variables = {
        environment.KERAS_BACKEND: "jax",
        environment.JAX_PLATFORMS: "cpu",
        environment.COMPILATION_CACHE: "false",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        ["taskset", "-c", str(core), sys.executable, __file__, "--one", name, where],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    weights, seconds = done.stdout.rpartition("MADE ")[2].split()
    return int(weights), float(seconds)


def table(names: list[str], titles: dict[str, str]) -> str:
    """Make the networks; return the seconds as a Markdown table.

    Args:
        names: Of the networks.
        titles: What they are.
    """
    lines = [f"| network | weights | {PLAIN}, s | {SCOPE}, s | times as fast |", "| --- |" + " ---: |" * 4]
    for name in names:
        weights, plain = made(name, PLAIN)
        _, scope = made(name, SCOPE)
        lines.append(f"| {titles[name]} | {weights:,} | {plain:.1f} | {scope:.1f} | {plain / scope:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it if asked."""
    titles = {name: network.title for name, network in NETWORKS.items() if network.make is not None}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=titles, default=[*titles], help="networks")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    chosen = parser.parse_args()
    if chosen.one:
        make(*chosen.one)
        return
    text = page("Making of networks, nothing compiled", ["one core; each in a process"], table(chosen.only, titles))
    print(text)
    if chosen.write:
        print(f"written: {save('making', text)}")


if __name__ == "__main__":
    main()
