"""What `test_elastic_shards.py` trains: state that rests in shards, of workers that die as they are told.

`trains_sharded.py FOLDER STAGE FAULTS`: STAGE is "optimizer", "gradients", "parameters", or "none"; faults as in
`trains_with_spares.py`. "validates" adds a validation, "saves" a checkpoint after each epoch, "backs-up" a backup after
every third step, in a loop at the end of the run only; "accumulates" updates after every fifth step; "loops" trains in
a loop of its own, "fits" in one that calls `fit` for each epoch, "by-batch" in one of `train_on_batch`; "no-copies"
leaves copies out, and allows for two workers at most; "hurries" wants two of three workers, and does not wait for them;
"awaits" lets one wait after its fifth step until another is about to join. "RANK:exchangeNUMBER:SIGNAL" is a fault
before an exchange with other workers, also one that hands shards round. All save the model at the end, and write what
they have.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from tests.faults.trains_elastic import Sizes
from tests.faults.trains_with_spares import EPOCHS, ROWS, STEPS, Faults, await_prepared, fault, note_prepared

import stratagem
from stratagem.host_memory.memory import HostMemory

SMALLEST = 8
"""Elements from which a variable is divided."""

ACCUMULATED = 5
"""Steps whose gradients make an update, where they are accumulated."""


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(STEPS * ROWS - 3, 6)).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("int32")


def made(accumulated: int | None = None) -> keras.Model:
    """Return a model with variables that divide by two, by three, and by neither."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(15, activation="tanh")]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=accumulated)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def rows() -> stratagem.data.Dataset:
    return stratagem.data.Dataset.from_tensor_slices(data()).shuffle(1000, seed=3).batch(ROWS)


def fitted(strategy: Any, model: keras.Model, folder: Path, faults: list[str]) -> dict[str, Any]:
    told, (x, y) = Faults(folder, strategy, faults), data()
    callbacks: list[Any] = [told]
    if "awaits" in faults:
        callbacks.append(Sizes(strategy, folder / "waits"))
    if "saves" in faults:
        callbacks.append(keras.callbacks.ModelCheckpoint(folder / "epoch-{epoch}.keras"))
    if "backs-up" in faults:
        callbacks.append(stratagem.callbacks.BackupAndRestore(folder / "backup", save_freq=3))
    held = stratagem.data.Dataset.from_tensor_slices((x[:66], y[:66])).batch(ROWS) if "validates" in faults else None
    history = model.fit(rows(), epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=held).history
    return {"history": history, "steps": told.steps}


def looped(strategy: Any, model: keras.Model, folder: Path, faults: list[str]) -> dict[str, Any]:
    optimizer: Any = model.optimizer
    rank = functools.cache(lambda: strategy.worker_index)
    dataset = strategy.experimental_distribute_dataset(rows())
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
    with strategy.scope():
        optimizer.build(model.trainable_variables)

    def train_on_replica(batch: Any) -> None:
        features, labels = batch
        with stratagem.GradientTape() as tape:
            each = crossentropy(labels, model(features, training=True))
            loss = stratagem.nn.compute_average_loss(each)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def train(state: Any) -> None:
        while state.epoch < EPOCHS:
            for batch in state.batches:
                strategy.run(train_on_replica, args=(batch,))
                state.steps.append((state.epoch, len(state.steps)))
                state.commit()
                if len(state.steps) == 1:
                    await_prepared(folder, faults)
                fault(folder, f"{rank()}:{len(state.steps)}", faults)
            state.epoch += 1
            state.batches = iter(dataset)

    state = stratagem.ElasticState(strategy, model=model, optimizer=optimizer, batches=iter(dataset), epoch=0, steps=[])
    checkpoint = stratagem.train.Checkpoint(state=state)
    manager = stratagem.train.CheckpointManager(checkpoint, folder / "checkpoints", max_to_keep=1)
    if "backs-up" in faults and manager.restore_or_initialize():
        print(f"Going on behind step {len(state.steps)}", flush=True)
    state.run(train, save=manager.save if "backs-up" in faults else None)
    return {"steps": state.steps}


def by_keras(strategy: Any, model: keras.Model, folder: Path, faults: list[str]) -> dict[str, Any]:
    """Train in a loop whose steps are Keras's; it evaluates after each epoch."""
    told, (x, y), optimizer = Faults(folder, strategy, faults), data(), model.optimizer
    with strategy.scope():
        optimizer.build(model.trainable_variables)

    def train(state: Any) -> None:
        while state.epoch < EPOCHS:
            if "fits" in faults:
                asked = {"initial_epoch": state.epoch, "epochs": state.epoch + 1, "verbose": 0, "callbacks": [told]}
                state.loss = model.fit(x, y, batch_size=ROWS, shuffle=False, **asked).history["loss"][0]
            while "by-batch" in faults and state.batch < STEPS:
                chosen = slice(state.batch * ROWS, (state.batch + 1) * ROWS)
                state.loss = float(model.train_on_batch(x[chosen], y[chosen])[0])
                state.batch += 1
                state.commit()
                fault(folder, f"{told.rank()}:{state.epoch * STEPS + state.batch}", faults)
            state.losses += [state.loss, *map(float, model.evaluate(x, y, batch_size=ROWS, verbose=0))]
            state.epoch, state.batch = state.epoch + 1, 0
            state.commit()

    plain: dict[str, Any] = {"epoch": 0, "batch": 0, "loss": 0.0, "losses": []}
    state = stratagem.ElasticState(strategy, model=model, optimizer=optimizer, **plain)
    state.run(train)
    return {"steps": [], "history": {"loss": state.losses}}


def meets_faults_in_exchanges(strategy: Any, folder: Path, faults: list[str]) -> None:
    """Let this worker meet its faults before an exchange, counted from now on."""
    numbers, exchange = itertools.count(1), HostMemory._exchange

    def watched(memory: HostMemory, *args: Any) -> None:
        fault(folder, f"{strategy.worker_index}:exchange{next(numbers)}", faults)
        exchange(memory, *args)

    HostMemory._exchange = watched


def main(folder: Path, stage: str, faults: list[str]) -> None:
    given: dict[str, Any] = {} if stage == "none" else {"shard": stage, "shard_min_size": SMALLEST}
    if "no-copies" in faults:
        given["elastic"] = stratagem.ElasticOptions(max_workers=2, shards="backup")
    if "hurries" in faults:
        given["elastic"] = stratagem.ElasticOptions(2, 3, below_min_seconds=0)
    note_prepared(folder)
    strategy = stratagem.MultiWorkerMirroredStrategy(**given)
    with strategy.scope():
        model = made(ACCUMULATED if "accumulates" in faults else None)
    if any("exchange" in each for each in faults):
        meets_faults_in_exchanges(strategy, folder, faults)
    is_of_keras = "fits" in faults or "by-batch" in faults
    train = looped if "loops" in faults else by_keras if is_of_keras else fitted
    found = train(strategy, model, folder, faults)
    model.save(folder / "model.keras")
    found["axes"] = [getattr(each, "shard_axis", None) for each in model.optimizer.variables]
    (folder / f"process-{os.getpid()}.json").write_text(json.dumps({**found, "workers": strategy.worker_count}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
