"""What `test_inspected.py` trains: a network that `Inspect` watches, whose workers die as they are told.

`trains_inspected.py FOLDER FAULTS`: faults as in `trains_with_spares.py`; "flip:STEP" flips a bit of a weight on worker
1 behind a step, "nan:STEP" puts NaN into a row of its batch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from tests.faults.trains_with_spares import Faults
from tests.flipped import flip_bit

import stratagem

STEPS, ROWS, EVERY = 30, 12, 6


def step_of(name: str, faults: list[str]) -> int | None:
    return next((int(fault.partition(":")[2]) for fault in faults if fault.startswith(f"{name}:")), None)


def main(folder: Path, faults: list[str]) -> None:
    strategy = stratagem.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(STEPS * ROWS, 6)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    if (bad := step_of("nan", faults)) is not None:
        x[(bad - 1) * ROWS + 7, 2] = np.nan
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, name="hidden"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    flipped = step_of("flip", faults)

    def flip(batch: int, logs: Any) -> None:
        if batch + 1 == flipped and strategy.cluster_resolver.task_id == 1:
            flip_bit(model._jax_state["trainable_variables"][0].addressable_data(0), 0)

    told = Faults(folder, strategy, faults)
    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=flip), told]
    error = ""
    try:
        inspect = stratagem.callbacks.Inspect(every=EVERY)
        model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0, callbacks=[*callbacks, inspect])
    except (stratagem.errors.InputError, stratagem.errors.PeerError) as found:
        error = str(found)
    weights = [np.asarray(variable).tolist() for variable in model.weights]
    (folder / f"process-{os.getpid()}.json").write_text(
        json.dumps({"error": error, "weights": weights, "steps": told.steps})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
