"""Batches per second from arrays in memory: `stratagem.data` and, where TensorFlow can be imported, `tf.data`.

60,000 images of 28x28, shuffled with a buffer of 60,000, repeated, batched by 128; one core where the system allows.
Run `python benchmarks/input_rate.py [--batches N] [--dtype float32]`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from stratagem.data import Dataset

EXAMPLES, BATCH = 60_000, 128


def milliseconds_per_batch(batches: Iterable[Any], count: int) -> float:
    """Return the mean time of a batch, the first (which fills the shuffle buffer) left out."""
    iterator = iter(batches)
    next(iterator)
    start = time.perf_counter()
    for _ in itertools.islice(iterator, count):
        pass
    return (time.perf_counter() - start) / count * 1e3


def ours(x: np.ndarray, y: np.ndarray, count: int) -> dict[str, float]:
    """Measure `stratagem.data`."""
    dataset = Dataset.from_tensor_slices((x, y))

    def scale(image: np.ndarray, label: np.ndarray) -> tuple[Any, np.ndarray]:
        return np.float32(image) / 255, label

    shuffled = dataset.shuffle(EXAMPLES).repeat().batch(BATCH)
    return {
        "stratagem shuffle.repeat.batch": milliseconds_per_batch(shuffled.batches(), count),
        "stratagem, read ahead": milliseconds_per_batch(shuffled.batches(prefetch=2), count),
        "stratagem, the rows of one of two workers": milliseconds_per_batch(
            shuffled.batches(lambda rows: slice(0, rows // 2)), count
        ),
        "stratagem, buffer of 10000": milliseconds_per_batch(
            dataset.shuffle(10_000).repeat().batch(BATCH).batches(), count
        ),
        "stratagem, map(scale).shuffle.repeat.batch": milliseconds_per_batch(
            dataset.map(scale).shuffle(EXAMPLES).repeat().batch(BATCH).batches(), count
        ),
        "stratagem, shuffle.repeat.batch.map(scale)": milliseconds_per_batch(shuffled.map(scale).batches(), count),
    }


def tensorflow(x: np.ndarray, y: np.ndarray, count: int) -> dict[str, float]:
    """Measure `tf.data`, with one thread as there is one core."""
    tf: Any = importlib.import_module("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(EXAMPLES).repeat().batch(BATCH)
    return {"tf.data shuffle.repeat.batch": milliseconds_per_batch(dataset, count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=2000, help="batches to measure")
    parser.add_argument("--dtype", default="float32", help="dtype of the images")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (EXAMPLES, 28, 28)).astype(options.dtype)
    y = rng.integers(0, 10, EXAMPLES)
    rows = ours(x, y, options.batches)
    if importlib.util.find_spec("tensorflow"):
        rows |= tensorflow(x, y, options.batches)
    print(f"{options.dtype}, batches of {BATCH}")
    for name, cost in rows.items():
        print(f"{name:45} {cost:8.3f} ms a batch {1e3 / cost:10.0f} batches/s")


if __name__ == "__main__":
    main()
