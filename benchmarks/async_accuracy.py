"""What asynchronous training costs in accuracy: MNIST with parameter servers beside one process, the same steps.

    stratagem run --ps 2 --workers 3 benchmarks/async_accuracy.py --data FOLDER

Add `--max-restarts N` and kill workers while it trains: how often each batch was trained on is counted where the
variables live, so the last lines tell what was lost and what was done twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import stratagem
from stratagem import keras

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import digits


class Counted(keras.Model):
    """A model whose training counts its batches, by their numbers, which come in the place of sample weights."""

    def count(self, batches: int) -> None:
        self.seen = self.add_weight(shape=(batches,), dtype="int32", initializer="zeros", trainable=False, name="seen")

    def train_step(self, data: Any) -> Any:
        x, y, number = data
        with stratagem.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.seen.assign_add(keras.ops.one_hot(number[0], self.seen.shape[0], dtype="int32"))
        return {"loss": loss}


def make_model(cls: type[keras.Model], rate: float, seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((28, 28, 1))
    x = keras.layers.Conv2D(16, 3, strides=2, activation="relu")(inputs)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu")(x)
    model = cls(inputs, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, help="of each epoch; all of the data when left out")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    options = parser.parse_args()

    strategy = stratagem.ParameterServerStrategy()
    (x, y), (x_test, y_test) = digits.load(options.data)
    steps = options.steps or len(x) // options.batch_size
    rows = np.random.default_rng(options.seed).permutation(len(x))[: steps * options.batch_size]
    x, y, x_test = x[rows, ..., None], y[rows], x_test[..., None]
    numbers = np.repeat(np.arange(steps, dtype="int32"), options.batch_size)
    fit = {"epochs": options.epochs, "verbose": 2}
    evaluate = {"batch_size": 500, "verbose": 0, "return_dict": True}

    with strategy.scope():
        model = make_model(Counted, options.learning_rate, options.seed)
        model.count(steps)
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y, numbers)).batch(options.batch_size)
    begin = time.perf_counter()
    model.fit(dataset, **fit)
    seconds = time.perf_counter() - begin
    asynchronous = model.evaluate(x_test, y_test, **evaluate)
    counts = stratagem.coordinator.ClusterCoordinator(strategy).metrics()
    seen = np.asarray(model.seen.value)
    strategy.close()

    plain = make_model(keras.Model, options.learning_rate, options.seed)
    plain.fit(x, y, batch_size=options.batch_size, shuffle=False, **fit)
    synchronous = plain.evaluate(x_test, y_test, **evaluate)

    print(f"{steps * options.epochs} steps of {options.batch_size} rows, on {len(x_test)} images not seen:")
    print(f"  asynchronous  accuracy {asynchronous['accuracy']:.2%}, loss {asynchronous['loss']:.4f}, {seconds:.0f} s")
    print(f"  one process   accuracy {synchronous['accuracy']:.2%}, loss {synchronous['loss']:.4f}")
    less, more = np.maximum(options.epochs - seen, 0).sum(), np.maximum(seen - options.epochs, 0).sum()
    print(f"batches lost {less}, done more often than {options.epochs} times {more}; mean staleness", end=" ")
    print(f"{counts['staleness'] / max(1, counts['updates']):.2f}; {counts}")


if __name__ == "__main__":
    main()
