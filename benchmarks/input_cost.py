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
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import keras
import numpy as np

import stratagem
from stratagem.data import Dataset
from stratagem.fit import adapter
from stratagem.fit.batch import GlobalBatch


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


class OneBatch(adapter.ShareIterator):
    """Reads one batch and hands it out for ever."""

    _held: GlobalBatch | None = None

    def _read(self) -> GlobalBatch | None:
        if self._held is None:
            self._held = super()._read()
        return self._held


def turn(model: keras.Model, dataset: Any, steps: int, iterator: type[adapter.ShareIterator]) -> float:
    """Return milliseconds a step, from the first step's end to the last one's."""
    ends: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())

    original, adapter.ShareIterator = adapter.ShareIterator, iterator
    try:
        model.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[Clock()])
    finally:
        adapter.ShareIterator = original
    return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3


def turns(arguments: argparse.Namespace) -> Iterator[tuple[float, float]]:
    x, y = digits()
    dataset = Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=0).repeat().batch(arguments.rows)
    with stratagem.MirroredStrategy(["cpu:0"]).scope():
        model = make_model()
    kinds = [adapter.ShareIterator, OneBatch]
    for kind in kinds:
        turn(model, dataset, arguments.steps, kind)
    for number in range(arguments.rounds):
        order = kinds if number % 2 == 0 else kinds[::-1]
        found = {kind: turn(model, dataset, arguments.steps, kind) for kind in order}
        yield found[kinds[0]], found[kinds[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=64)
    found = list(turns(parser.parse_args()))
    read, held = (statistics.median(column) for column in zip(*found, strict=True))
    ratio = statistics.median(one / other for one, other in found)
    sys.stdout.write(f"with input {read:.2f} ms a step, without {held:.2f} ms, ratio {ratio:.4f}\n")


if __name__ == "__main__":
    main()
