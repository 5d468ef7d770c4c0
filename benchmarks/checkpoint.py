"""How long saving blocks the program, with and without `enable_async=True`.

Run `KERAS_BACKEND=jax python benchmarks/checkpoint.py [--megabytes 100] [--saves 8] [--write]`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from typing import Any

import keras
import numpy as np
from pages import page, save

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--saves", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    if arguments.saves < 2:
        parser.error("the first save does not count: --saves 2 or more")
    seconds = {
        name: blocking_times(arguments.megabytes, arguments.saves, in_background=in_background)
        for name, in_background in (("synchronous", False), ("asynchronous", True))
    }
    facts = [
        f"{arguments.megabytes:g} MB in {VARIABLES} variables, {arguments.saves} saves each way, to a local folder"
    ]
    text = page("How long saving a checkpoint blocks the program", facts, table(seconds))
    print(text)
    if arguments.write:
        print(f"written: {save('checkpoint', text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
