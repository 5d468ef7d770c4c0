"""Workers train beside one another, and parameter servers hold the variables.

Run it:
    python examples/parameter_server.py                                  # two workers in threads of this process
    stratagem run --ps 2 --workers 2 examples/parameter_server.py

Every task runs this program; workers and parameter servers do not come past the strategy. Two training loops do the
same: Keras's `fit`, and one that schedules its own steps. docs/parameter_servers.md explains each part.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import digits

import stratagem
from stratagem import keras

BATCH_SIZE = 64


def make_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.InputLayer(shape=(28, 28)),  # variables are made here, on the chief
            keras.layers.Reshape(target_shape=(28, 28, 1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=keras.optimizers.Adam(0.002), metrics=["accuracy"])
    return model


def train_by_schedule(strategy: stratagem.ParameterServerStrategy, model: Any, steps: int, data: str | None) -> None:
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    with strategy.scope():
        mean = keras.metrics.Mean()

    def dataset_fn(context: stratagem.InputContext) -> stratagem.data.Dataset:
        """Make the input of one worker: all digits, again and again, in an order of its own."""
        dataset = stratagem.data.Dataset.from_tensor_slices(digits.load(data)[0])
        return dataset.shuffle(60000).repeat().batch(BATCH_SIZE)

    @stratagem.function
    def step(iterator: Any) -> None:
        def replica_fn(images: Any, labels: Any) -> None:
            with stratagem.GradientTape() as tape:
                losses = loss_of(labels, model(images, training=True))
                loss = stratagem.nn.compute_average_loss(losses, global_batch_size=BATCH_SIZE)
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            mean.update_state(losses)

        strategy.run(replica_fn, args=next(iterator))

    make: Callable[[], Any] = lambda: strategy.distribute_datasets_from_function(dataset_fn)  # noqa: E731
    iterator = iter(coordinator.create_per_worker_dataset(make))
    for _ in range(steps):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    print(f"Scheduled {steps} steps: mean loss {float(mean.result()):.4f}, {coordinator.metrics()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100, help="steps to schedule after fit")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    options = parser.parse_args()

    partitioner = stratagem.experimental.partitioners.MinSizePartitioner(min_shard_bytes=64 << 10, max_shards=2)
    strategy = stratagem.ParameterServerStrategy(variable_partitioner=partitioner)
    (x_train, y_train), (x_test, y_test) = digits.load(options.data)
    with strategy.scope():
        model = make_model()
    model.fit(x_train, y_train, batch_size=BATCH_SIZE, epochs=options.epochs)
    train_by_schedule(strategy, model, options.steps, options.data)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=BATCH_SIZE)
    print(f"On digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")


if __name__ == "__main__":
    main()
