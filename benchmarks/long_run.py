"""A long run: whether memory and the time of a step stay what they are, over 100,000 steps by default.

    python benchmarks/long_run.py [--steps 100000] [--workers 2] [--write]

Workers with a core each train a small network with `fit`. Every 1,000 steps an epoch ends, with an evaluation, a
checkpoint and a callback of the program's own; `BackupAndRestore` saves within epochs too. The table has a row for each
tenth of the run. Memory that grows by more than a megabyte an hour over the second half, or steps that take 5% longer
in the last fifth than in the second, are a failure. Linux only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pages import page, save

import stratagem
from stratagem import keras
from stratagem.testing import run_workers

STEPS_OF_EPOCH: Final = 1000
ROWS: Final = 32
PARTS: Final = 10
MOST_GROWTH: Final = 1.0
"""Megabytes an hour."""

MOST_SLOWER: Final = 1.05


class Epoch(NamedTuple):
    """What a worker noted at the end of an epoch.

    Args:
        at: Seconds since its first step.
        ms: Median time of a step.
        resident: Bytes of memory.
    """

    at: float
    ms: float
    resident: int


class Notes(keras.callbacks.Callback):
    """Notes time and memory of each epoch, in arrays that are made before, so that the notes themselves do not grow."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self._rows = np.zeros((epochs, 3))
        self._ends = np.zeros(STEPS_OF_EPOCH)
        self._began = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._ends[batch] = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        milliseconds = 1e3 * float(np.median(np.diff(self._ends)))
        self._rows[epoch] = time.perf_counter() - self._began, milliseconds, pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def epochs(self) -> list[Epoch]:
        """What was noted."""
        return [Epoch(at, ms, int(resident)) for at, ms, resident in self._rows]


def on_worker(steps: int, folder: str, cores: Sequence[int]) -> list[Epoch]:
    """Train on this worker, which binds itself to one core.

    Args:
        steps: Of the run.
        folder: For checkpoints and backups.
        cores: Those of this machine.
    """
    index = stratagem.cluster_resolver.TFConfigClusterResolver().task_id or 0
    os.sched_setaffinity(0, {cores[index % len(cores)]})
    strategy = stratagem.MultiWorkerMirroredStrategy()
    rows = ROWS * strategy.num_replicas_in_sync
    rng = np.random.default_rng(0)
    x, y = rng.random((STEPS_OF_EPOCH * rows, 20), np.float32), rng.integers(0, 10, STEPS_OF_EPOCH * rows)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((20,)), keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.1), keras.layers.Dense(10)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])
    epochs = steps // STEPS_OF_EPOCH
    notes = Notes(epochs)
    callbacks = [
        notes,
        keras.callbacks.ModelCheckpoint(str(Path(folder, f"best-{index}.keras")), save_best_only=True),
        stratagem.callbacks.BackupAndRestore(str(Path(folder, "backup")), save_freq=STEPS_OF_EPOCH // 2),
    ]
    some = 4 * rows
    model.fit(
        x, y, batch_size=rows, epochs=epochs, verbose=0, callbacks=callbacks, validation_data=(x[:some], y[:some])
    )
    return notes.epochs


def growth(epochs: Sequence[Epoch]) -> float:
    """Return by how many megabytes an hour memory grows over the second half of a run: the slope of least squares."""
    half = epochs[len(epochs) // 2 :]
    slope = np.polyfit([each.at for each in half], [each.resident for each in half], 1)[0]
    return float(slope) * 3600 / 1e6


def slower(epochs: Sequence[Epoch]) -> float:
    """Return the time of a step in the last fifth of a run, relative to that in the second."""
    fifth = len(epochs) // 5
    last, second = epochs[-fifth:], epochs[fifth : 2 * fifth]
    return statistics.median(each.ms for each in last) / statistics.median(each.ms for each in second)


def table(of_workers: Sequence[Sequence[Epoch]]) -> str:
    """Return each tenth of the run as a row of a Markdown table."""
    heads = ["steps", *(f"ms/step, worker {i} | MB" for i in range(len(of_workers)))]
    lines = [f"| {' | '.join(heads)} |", "| ---: " * (1 + 2 * len(of_workers)) + "|"]
    for part in range(PARTS):
        rows = []
        for epochs in of_workers:
            some = epochs[part * len(epochs) // PARTS : (part + 1) * len(epochs) // PARTS]
            rows.append(f"{statistics.median(each.ms for each in some):.3f} | {some[-1].resident / 1e6:.1f}")
        steps = (part + 1) * len(of_workers[0]) // PARTS * STEPS_OF_EPOCH
        lines.append(f"| {steps:,} | {' | '.join(rows)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Be the command; the exit code is 1 if memory or the time of a step grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    options = parser.parse_args(arguments)
    if options.steps < 2 * PARTS * STEPS_OF_EPOCH:
        parser.error(f"--steps {2 * PARTS * STEPS_OF_EPOCH} or more")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        results = run_workers(
            on_worker, options.workers, args=[options.steps, folder, cores], timeout_seconds=options.steps / 10
        )
    found = [result.value for result in results]
    facts = [
        f"worker {i}: memory grows by {growth(each):+.2f} MB an hour over the second half, a step takes "
        f"{slower(each):.3f} times as long in the last fifth as in the second, {each[-1].at:.0f} s in all"
        for i, each in enumerate(found)
    ]
    text = page(f"{options.steps:,} steps of a small network", facts, table(found))
    print(text)
    if options.write:
        print(f"written: {save('long_run', text)}", file=sys.stderr)
    return int(any(growth(each) > MOST_GROWTH or slower(each) > MOST_SLOWER for each in found))


if __name__ == "__main__":
    sys.exit(main())
