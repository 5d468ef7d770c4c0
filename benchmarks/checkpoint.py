"""How long saving blocks the program, with and without `enable_async=True`.

Run `python benchmarks/checkpoint.py [--megabytes 100] [--saves 8] [--write]`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure
from pages import page, save

from stratagem import keras
from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions

VARIABLES = 20


def state_of(megabytes: float) -> dict[str, Any]:
    """Return variables of so many megabytes together."""
    size = int(megabytes * 1e6 / 4 / VARIABLES)
    return {f"v{i}": keras.Variable(np.full(size, i, "float32"), trainable=False) for i in range(VARIABLES)}


def blocking_times(megabytes: float, saves: int, *, in_background: bool) -> list[float]:
    """Return for each of several saves the seconds after which the program could go on."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(**state_of(megabytes))
        manager = CheckpointManager(checkpoint, folder, max_to_keep=2)
        for _ in range(saves):
            start = time.perf_counter()
            manager.save(options=CheckpointOptions(enable_async=in_background))
            seconds.append(time.perf_counter() - start)
            manager.sync()
    return seconds


def table(seconds: dict[str, list[float]]) -> str:
    """Return how long each way of saving blocks, as a Markdown table."""
    reference = statistics.median(seconds["synchronous"][1:])
    lines = ["| saving | first, ms | median of the rest, ms | of synchronous |", "| --- | ---: | ---: | ---: |"]
    for name, times in seconds.items():
        median = statistics.median(times[1:])
        lines.append(f"| {name} | {times[0] * 1e3:.1f} | {median * 1e3:.1f} | {median / reference:.1%} |")
    return "\n".join(lines)


def of_each_way(megabytes: float, saves: int) -> dict[str, list[float]]:
    """Return the times of each way of saving."""
    ways = {"synchronous": False, "asynchronous": True}
    return {name: blocking_times(megabytes, saves, in_background=background) for name, background in ways.items()}


def summary(seconds: Mapping[str, list[float]], megabytes: float) -> list[Figure]:
    """Return what the suite shows of the results; the first save does not count."""
    at_once, later = (1e3 * statistics.median(seconds[name][1:]) for name in ("synchronous", "asynchronous"))
    heading = f"a checkpoint of {megabytes:g} MB blocks the program for"
    with_async = Figure(heading, "`enable_async=True`", later, "ms", later / at_once, "synchronous")
    return [Figure(heading, "synchronous", at_once, "ms"), with_async]


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    return summary(of_each_way(megabytes=100, saves=8), megabytes=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--saves", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.saves < 2:
        parser.error("the first save does not count: --saves 2 or more")
    seconds = of_each_way(arguments.megabytes, arguments.saves)
    facts = [
        f"{arguments.megabytes:g} MB in {VARIABLES} variables, {arguments.saves} saves each way, to a local folder"
    ]
    text = page("How long saving a checkpoint blocks the program", facts, table(seconds))
    print(text)
    if arguments.write:
        print(f"written: {save('checkpoint', text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
