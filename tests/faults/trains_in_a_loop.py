"""What `test_elastic_state.py` trains: a loop of its own, of two programs a step, whose workers die as they are told.

`trains_in_a_loop.py FOLDER FAULTS`: a fault is "RANK:STEP:SIGNAL" behind a step, "RANK:midSTEP:SIGNAL" between the two
programs of a step, or "RANK:epochEPOCH:SIGNAL" behind an epoch; the first process that comes to it as that worker sends
itself the signal. "plain" leaves out what depends on the number of workers, "forgets" a metric in the state; "before"
runs a program before the loop. Those that come to the end write what they have.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from tests.faults.trains_with_spares import fault

import stratagem

STEPS, EPOCHS, ROWS = 8, 3, 22
HELD = 30


def made(*, is_plain: bool) -> keras.Model:
    own = [] if is_plain else [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
    layers = [keras.layers.Dense(16, activation="tanh"), *own, keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((6,)), *layers])


def digest(values: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in values)).hexdigest()


def main(folder: Path, faults: list[str]) -> None:
    strategy = stratagem.MultiWorkerMirroredStrategy()
    rank = functools.cache(lambda: strategy.worker_index)  # asked in the loop: a process that prepares has none before
    # Each process makes another order, before its seed is set.
    held_rows = [stratagem.data.Dataset.range(HELD).shuffle(HELD).batch(10) for _ in range(2)]
    held = strategy.experimental_distribute_dataset(held_rows[0])
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(STEPS * ROWS - 3, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    rows = stratagem.data.Dataset.from_tensor_slices((np.arange(len(x)), x, y))
    dataset = strategy.experimental_distribute_dataset(rows.shuffle(1000).batch(ROWS))
    with strategy.scope():
        model = made(is_plain="plain" in faults)
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        losses = keras.metrics.Mean()
        seen = keras.Variable(np.zeros(len(x), "int32"), trainable=False, aggregation="sum")
        tested = keras.Variable(np.zeros(HELD, "int32"), trainable=False, aggregation="sum")
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def train_on_replica(batch: Any, scale: Any) -> None:
        _, features, labels = batch
        with stratagem.GradientTape() as tape:
            each = crossentropy(labels, model(features, training=True))
            loss = stratagem.nn.compute_average_loss(each, global_batch_size=ROWS)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients([(g * scale, v) for g, v in zip(gradients, model.trainable_variables, strict=True)])
        losses.update_state(each)

    def note_on_replica(batch: Any) -> None:
        seen.assign_add(keras.ops.one_hot(batch[0], len(x), dtype="int32").sum(axis=0))

    def test_on_replica(numbers: Any) -> None:
        tested.assign_add(keras.ops.one_hot(numbers, HELD, dtype="int32").sum(axis=0))

    @stratagem.function
    def train_step(batch: Any, scale: Any) -> None:
        strategy.run(train_on_replica, args=(batch, scale))

    steps: list[tuple[int, int]] = []
    sizes: list[int] = []
    state = stratagem.ElasticState(
        strategy,
        model=model,
        optimizer=optimizer,
        metrics=(seen, tested) if "forgets" in faults else (losses, seen, tested),
        batches=iter(dataset),
        epoch=0,
        step=0,
        history=[],
    )

    def loop(state: Any) -> str:
        also_held = strategy.experimental_distribute_dataset(held_rows[1])
        while state.epoch < EPOCHS:
            for batch in state.batches:
                train_step(batch, random.uniform(0.5, 1.5))
                fault(folder, f"{rank()}:mid{state.step + 1}", faults)
                strategy.run(note_on_replica, args=(batch,))
                state.step += 1
                state.commit()
                steps.append((state.epoch, state.step))
                sizes.append(strategy.num_replicas_in_sync)
                fault(folder, f"{rank()}:{state.step}", faults)
            state.history.append(float(losses.result()))
            losses.reset_state()
            for numbers in itertools.chain(held, also_held):
                strategy.run(test_on_replica, args=(numbers,))
            state.epoch += 1
            state.batches = iter(dataset)
            fault(folder, f"{rank()}:epoch{state.epoch}", faults)
        return "done"

    if "before" in faults:
        strategy.run(lambda: seen.assign_add(seen * 0))
    assert state.run(loop) == "done"
    found = {
        "history": state.history,
        "weights": digest(model.variables),
        "values": [np.asarray(each).tolist() for each in model.variables],
        "slots": digest(optimizer.variables),
        "seen": np.asarray(seen).tolist(),
        "tested": np.asarray(tested).tolist(),
        "steps": steps,
        "sizes": sizes,
    }
    (folder / f"worker-{strategy.worker_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
