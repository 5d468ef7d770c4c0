"""What `test_elastic.py` trains: a model whose numbers do not depend on how many workers there are.

`trains_elastic.py FOLDER WORKERS FAULTS`: WORKERS is how many there are at the start; faults as in
`trains_with_spares.py`. With 0 workers one process trains it with Keras alone. "asks:MIN:MAX" makes the strategy with
`elastic=`; with "awaits" one worker waits after its fifth step until another is about to join.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from tests.faults.trains_with_spares import Faults, fault, meet_faults_of_preparing, note_prepared

import stratagem
from stratagem.core.clock import Clock, Deadline

STEPS, EPOCHS, ROWS = 8, 4, 24
TESTS, VALIDATED = 3, 66


class Sizes(keras.callbacks.Callback):
    """Callback that notes how many replicas there are at each step."""

    def __init__(self, strategy: Any, awaited: Path | None) -> None:
        super().__init__()
        self.strategy = strategy
        self.awaited = awaited
        self.sizes: list[int] = []
        self.heard: list[tuple[int, int]] = []

    def on_world_changed(self, old: int, new: int) -> None:
        self.heard.append((old, new))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sizes.append(self.strategy.num_replicas_in_sync)
        if self.awaited is not None and self.sizes == [1] * 5:
            self.awaited.touch()
            gate, deadline = self.strategy.mesh.world.membership.gate, Deadline(120.0)
            while not (gate._is_held or gate.world > 1 or deadline.expired):  # it is held for a moment only
                Clock().wait(0.01)


def made() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def main(folder: Path, workers: int, faults: list[str]) -> None:
    asked = [map(int, each.split(":")[1:]) for each in faults if each.startswith("asks:")]
    elastic = stratagem.ElasticOptions(*asked[0]) if asked else None
    note_prepared(folder)
    strategy = stratagem.MultiWorkerMirroredStrategy(elastic=elastic) if workers else None
    if strategy:
        meet_faults_of_preparing(folder, strategy, faults, "process-*")
    x = np.random.default_rng(0).normal(size=(STEPS * ROWS - 3, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    # As programs do: a process that comes later has to make the same batches.
    rows = ROWS // workers * strategy.num_replicas_in_sync if strategy else ROWS
    callbacks: list[Any] = [keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=10.0)]
    callbacks.append(keras.callbacks.CSVLogger(folder / "log.csv"))
    # The worst is that of the first epoch, which a chief that has not seen it would write over.
    worst = str(folder / "worst.weights.h5")
    callbacks.append(
        keras.callbacks.ModelCheckpoint(worst, "val_loss", mode="max", save_best_only=True, save_weights_only=True)
    )
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).shuffle(1000, seed=3).batch(rows)
    held = (x[:VALIDATED], y[:VALIDATED])
    told: Any = None
    if strategy is None:
        batches = (batch for _ in itertools.count() for batch in dataset)
        model = made()
        history = model.fit(
            batches, steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=held
        ).history
        took: dict[str, Any] = {}
    else:
        with strategy.scope():
            if any("scope" in each for each in faults):
                fault(folder, f"{strategy.worker_index}:scope", faults)
            model = made()
        told = Faults(folder, strategy, faults)
        sizes = Sizes(strategy, folder / "waits" if "awaits" in faults else None)
        callbacks += [sizes, told]
        history = model.fit(
            dataset,
            epochs=EPOCHS,
            verbose=0,
            callbacks=callbacks,
            validation_data=held,
            validation_batch_size=VALIDATED // TESTS,
        ).history
        took = {"steps": told.steps, "sizes": sizes.sizes, "heard": sizes.heard}
    evaluated = model.evaluate(*held, batch_size=VALIDATED // TESTS, verbose=0, callbacks=[told] if told else None)
    predicted = model.predict(x[:7], batch_size=4, verbose=0).tolist()
    values = {"weights": model.weights, "slots": model.optimizer.variables}
    found = {name: [np.asarray(each).tolist() for each in variables] for name, variables in values.items()}
    model.load_weights(worst)
    found["worst"] = model.evaluate(*held, batch_size=VALIDATED // TESTS, verbose=0)
    if strategy:
        took["cores"] = sorted(os.sched_getaffinity(0))
        took["rank"] = strategy.worker_index  # also after evaluations
    found |= {"history": history, "evaluated": evaluated, "predicted": predicted, **took}
    (folder / f"process-{os.getpid()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
