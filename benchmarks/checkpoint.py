"""How long saving blocks the program, with and without `enable_async=True`.

Run `python benchmarks/checkpoint.py [--megabytes 100] [--saves 8]`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import keras
import numpy as np

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


def compare(megabytes: float, saves: int) -> None:
    """Print both ways side by side."""
    medians = {}
    for name, in_background in (("synchronous", False), ("asynchronous", True)):
        seconds = blocking_times(megabytes, saves, in_background=in_background)
        medians[name] = statistics.median(seconds[1:])
        print(f"{name:>12}: first {seconds[0] * 1e3:7.1f} ms, median of the rest {medians[name] * 1e3:7.1f} ms")
    print(f"asynchronous saving blocks for {medians['asynchronous'] / medians['synchronous']:.1%} of the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--saves", type=int, default=8)
    arguments = parser.parse_args()
    compare(arguments.megabytes, arguments.saves)


if __name__ == "__main__":
    main()
