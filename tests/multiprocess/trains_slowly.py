"""Trains on all workers, one of which is slower in one part: `trains_slowly.py PART MILLISECONDS WORKER STEPS`."""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import numpy as np

import stratagem
from stratagem import keras


def main() -> None:
    part, milliseconds, worker, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    strategy = stratagem.MultiWorkerMirroredStrategy()
    seconds = milliseconds / 1e3 if strategy.cluster_resolver.task_id == worker else 0.0

    def wait(*values: Any) -> Any:
        time.sleep(seconds)
        return values[0] if len(values) == 1 else values

    class Computes(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            if part != "computing":
                return inputs
            first, shape = jax.lax.stop_gradient(inputs.ravel()[0]), jax.ShapeDtypeStruct((), "float32")
            return inputs + 0 * jax.lax.stop_gradient(jax.pure_callback(wait, shape, first))

    class Between(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if part == "between":
                wait(batch)

    x = np.random.default_rng(0).normal(size=(3200, 32)).astype("float32")
    rows = stratagem.data.Dataset.from_tensor_slices((x, x[:, :1])).repeat().batch(64)
    if part == "input":
        rows = rows.map(wait)
    with strategy.scope():
        hidden = [keras.layers.Dense(256, "relu") for _ in range(3)]
        model = keras.Sequential([keras.Input((32,)), Computes(), *hidden, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(rows, steps_per_epoch=steps, verbose=2, callbacks=[Between()])


if __name__ == "__main__":
    main()
