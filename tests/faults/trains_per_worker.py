"""What `test_per_worker.py` trains: each worker keeps its rows of a batch, however many workers there are.

`trains_per_worker.py FOLDER KIND FAULTS`: KIND is "fit", "arrays" (`fit` with arrays), "repeats" (`fit` with
`steps_per_epoch`), or "loop" (a loop of its own); faults as in `trains_with_spares.py`. Those that come to the end
write what they have.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from tests.faults.trains_with_spares import Faults, fault

import stratagem

STEPS, EPOCHS, ROWS, WORKERS = 8, 3, 8, 3
"""Steps of an epoch with all workers, epochs, rows of a worker, and workers at the start."""

NUMBER, RATE = STEPS * ROWS * WORKERS - 5, 0.1
"""Rows, and the learning rate with all workers."""


class Sizes(keras.callbacks.Callback):
    """Callback that notes the epoch of each step, how many workers take part, and how many steps `fit` announces."""

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self.strategy = strategy
        self.epoch = 0
        self.sizes: list[tuple[int, int]] = []
        self.announced: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sizes.append((self.epoch, self.strategy.num_replicas_in_sync))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.announced.append((self.params or {})["steps"])


class ScaledRate(keras.callbacks.Callback):
    """Callback that lets the learning rate follow the size of the batch, as docs/elastic.md shows it."""

    def on_world_changed(self, old: int, new: int) -> None:
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate) * new / old


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(NUMBER, 6)).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("int32")


def order() -> stratagem.data.Dataset:
    return stratagem.data.Dataset.range(NUMBER).shuffle(1000, seed=3)


def made() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE, momentum=0.9), loss)
    return model


def fitted(strategy: Any, kind: str, folder: Path, faults: list[str]) -> dict[str, Any]:
    x, y = data()
    with strategy.scope():
        model = made()
    told, sizes = Faults(folder, strategy, faults), Sizes(strategy)
    given: dict[str, Any] = {"epochs": EPOCHS, "verbose": 0, "callbacks": [sizes, ScaledRate(), told]}
    rows = ROWS * strategy.num_replicas_in_sync
    if kind == "arrays":
        history = model.fit(x, y, batch_size=rows, shuffle=False, **given).history
    else:
        shuffled = order().map(lambda number: (x[number], y[number]))
        if kind == "repeats":
            history = model.fit(shuffled.repeat().batch(rows), steps_per_epoch=STEPS, **given).history
        else:
            history = model.fit(shuffled.batch(rows), validation_data=(x, y), validation_batch_size=30, **given).history
    weights = [np.asarray(each).tolist() for each in model.weights]
    return {"weights": weights, "history": history, "sizes": sizes.sizes, "announced": sizes.announced}


def looped(strategy: Any, folder: Path, faults: list[str]) -> dict[str, Any]:
    dataset = strategy.experimental_distribute_dataset(order().batch(ROWS * strategy.num_replicas_in_sync))
    rank = functools.cache(lambda: strategy.worker_index)
    with strategy.scope():
        seen = keras.Variable(np.zeros(NUMBER, "int32"), trainable=False, aggregation="sum")

    def note_on_replica(numbers: Any) -> None:
        seen.assign_add(keras.ops.one_hot(numbers, NUMBER, dtype="int32").sum(axis=0))

    def train(state: Any) -> None:
        while state.epoch < EPOCHS:
            for batch in state.batches:
                strategy.run(note_on_replica, args=(batch,))
                state.sizes.append((state.epoch, strategy.num_replicas_in_sync))
                state.commit()
                fault(folder, f"{rank()}:{len(state.sizes)}", faults)
            state.epoch += 1
            state.batches = iter(dataset)

    state = stratagem.ElasticState(strategy, seen=seen, batches=iter(dataset), epoch=0, sizes=[])
    state.run(train)
    return {"seen": np.asarray(seen).tolist(), "sizes": state.sizes}


def main(folder: Path, kind: str, faults: list[str]) -> None:
    elastic = stratagem.ElasticOptions(1, WORKERS, batch="per_worker")
    strategy = stratagem.MultiWorkerMirroredStrategy(elastic=elastic)
    found = looped(strategy, folder, faults) if kind == "loop" else fitted(strategy, kind, folder, faults)
    (folder / f"process-{os.getpid()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
