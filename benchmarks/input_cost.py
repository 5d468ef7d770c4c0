"""What reading the data adds to a step of `fit`: MNIST from a shuffled dataset against one batch again and again.

The network of TensorFlow's multi-worker tutorials trains in one process on one core. The two take turns of `--steps`
steps, in every second round in reverse order; the ratio is the median of the rounds' own. The batch that comes again
and again is on the device and costs nothing. Linux only.

    python benchmarks/input_cost.py [--rounds 11] [--steps 200] [--rows 64]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures import Figure

import stratagem
from stratagem import keras
from stratagem.data import Dataset
from stratagem.feed import adapter
from stratagem.feed.source import Rows


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return MNIST where `STRATAGEM_DATA` has it, else noise: the time does not depend on it."""
    path = Path(os.environ.get("STRATAGEM_DATA", "")) / "mnist.npz"
    if path.is_file():
        with np.load(path) as arrays:
            return arrays["x_train"][..., None].astype("float32") / 255, arrays["y_train"].astype("int64")
    rng = np.random.default_rng(0)
    return rng.random((60_000, 28, 28, 1), "float32"), rng.integers(0, 10, 60_000)


def make_model() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.001), loss=loss, metrics=["accuracy"])
    return model


class OneBatch(adapter.Feed):
    """Reads one batch and hands it out for ever."""

    _held: Rows | None = None

    def _read(self) -> Rows | None:
        if self._held is None:
            self._held = super()._read()
        return self._held


def turn(model: keras.Model, dataset: Any, steps: int, iterator: type[adapter.Feed]) -> float:
    """Return milliseconds a step, from the first step's end to the last one's."""
    ends: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())

    original, adapter.Feed = adapter.Feed, iterator
    try:
        model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[Clock()])
    finally:
        adapter.Feed = original
    return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3


class Measured(NamedTuple):
    """Milliseconds of a step, medians over the rounds: with its input read, and with one batch again and again.

    Args:
        read: With its input.
        held: Without.
        ratio: The median of the rounds' own.
    """

    read: float
    held: float
    ratio: float


def measured(rounds: int, steps: int, rows: int) -> Measured:
    """Measure both, on the first core of this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX starts its threads, which inherit it
    x, y = digits()
    dataset = Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=0).repeat().batch(rows)
    with stratagem.MirroredStrategy(["cpu:0"]).scope():
        model = make_model()
    kinds = [adapter.Feed, OneBatch]
    times: dict[type[adapter.Feed], list[float]] = {kind: [] for kind in kinds}
    for kind in kinds:
        turn(model, dataset, steps, kind)
    for number in range(rounds):
        for kind in kinds[:: -1 if number % 2 else 1]:
            times[kind].append(turn(model, dataset, steps, kind))
    read, held = times.values()
    ratio = statistics.median(one / other for one, other in zip(read, held, strict=True))
    return Measured(statistics.median(read), statistics.median(held), ratio)


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    found = measured(rounds=7, steps=100, rows=64)
    what = "from a shuffled dataset in memory"
    return [
        Figure("step of `fit` with its input", what, found.read, "ms", found.ratio, "the same batch again and again")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=64)
    options = parser.parse_args()
    found = measured(options.rounds, options.steps, options.rows)
    print(f"with input {found.read:.2f} ms a step, without {found.held:.2f} ms, ratio {found.ratio:.4f}")


if __name__ == "__main__":
    main()
