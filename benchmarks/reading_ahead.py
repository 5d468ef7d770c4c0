"""Batches per second where reading takes time: in one thread, in several, and in reader processes.

Three pipelines of 64 rows a batch: a function of pure Python, PNG images decoded by Pillow (where it is installed), and
a function that returns at once; each without training, so that every core is free to read.
Run `python benchmarks/reading_ahead.py [--batches N] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stratagem.data import AUTOTUNE, Dataset, Options

BATCH = 64


def pure_python(i: int) -> np.ndarray:
    total = int(i)
    for number in range(20_000):
        total = (total * 31 + number) % 1_000_003
    return np.full(16, total, np.float32)


def cheap(i: int) -> np.ndarray:
    return np.full(16, i, np.float32)


def decoding() -> Callable[[int], np.ndarray]:
    image: Any = importlib.import_module("PIL.Image")
    rng = np.random.default_rng(0)
    files = []
    for _ in range(16):
        pixels = np.repeat(np.repeat(rng.integers(0, 255, (28, 28, 3)), 8, 0), 8, 1).astype(np.uint8)
        file = io.BytesIO()
        image.fromarray(pixels).save(file, "PNG")
        files.append(file.getvalue())

    def decode(i: int) -> np.ndarray:
        return np.asarray(importlib.import_module("PIL.Image").open(io.BytesIO(files[int(i) % len(files)])))

    return decode


def batches_per_second(function: Callable[[int], np.ndarray], count: int, calls: int | None, processes: int) -> float:
    """Return the rate behind the first 4 batches, in which threads and processes start."""
    options = Options()
    options.reader_processes = processes
    dataset = Dataset.range((count + 4) * BATCH).map(function, num_parallel_calls=calls).batch(BATCH)
    batches = dataset.with_options(options).batches(prefetch=2)
    for _ in range(4):
        next(batches)
    start = time.perf_counter()
    for _ in batches:
        pass
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=60, help="batches to measure")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many is shown")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    functions = {"pure Python": pure_python, "cheap": cheap}
    if importlib.util.find_spec("PIL"):
        functions["PNG of 224x224x3"] = decoding()
    ways = {"one thread": (None, 0), "AUTOTUNE": (AUTOTUNE, 0), "1 process": (None, 1), "2 processes": (None, 2)}
    print(f"{cores} cores, batches of {BATCH}, batches/s")
    for name, function in functions.items():
        for way, (calls, processes) in ways.items():
            count = arguments.batches * (20 if function is cheap else 1)
            rates = [batches_per_second(function, count, calls, processes) for _ in range(arguments.rounds)]
            print(f"{name:20} {way:12} {statistics.median(rates):9.1f}", flush=True)


if __name__ == "__main__":
    main()
