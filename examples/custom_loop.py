"""TensorFlow's tutorial "Custom training with tf.distribute.Strategy", on one device, several, or several workers.

Run it:
    python examples/custom_loop.py                # all GPUs; without any, the CPU
    python examples/custom_loop.py --devices 2    # two virtual CPU devices, to try it without GPUs
    stratagem run --workers 2 examples/custom_loop.py --strategy multi_worker

It trains on Fashion-MNIST where --data or STRATAGEM_DATA has `fashion_mnist.npz`, else on the digits inside Stratagem.
docs/custom_loops.md explains each part.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import digits

import stratagem
from stratagem import keras

STRATEGIES = {"mirrored": stratagem.MirroredStrategy, "multi_worker": stratagem.MultiWorkerMirroredStrategy}


def create_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def percent(metric: keras.Metric) -> float:
    return float(metric.result()) * 100


def accuracy_without_strategy(folder: Path, test_dataset: stratagem.data.Dataset) -> float:
    """Restore the newest checkpoint into a new model, and return its accuracy in percent."""
    model = create_model()
    checkpoint = stratagem.train.Checkpoint(optimizer=keras.optimizers.Adam(), model=model)
    # The weights come when the model is built; expect_partial: the optimizer, which never steps, does not take its own.
    checkpoint.restore(stratagem.train.latest_checkpoint(folder)).expect_partial()
    accuracy = keras.metrics.SparseCategoricalAccuracy()

    @stratagem.function
    def eval_step(images: Any, labels: Any) -> None:
        accuracy.update_state(labels, model(images, training=False))

    for images, labels in test_dataset:
        eval_step(images, labels)
    return percent(accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size-per-replica", type=int, default=64)
    parser.add_argument("--strategy", choices=STRATEGIES, default="mirrored")
    parser.add_argument("--devices", type=int, help="virtual CPU devices, to try it without GPUs")
    parser.add_argument("--checkpoints", type=Path, default=Path("training_checkpoints"), help="folder")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with fashion_mnist.npz")
    options = parser.parse_args()
    if options.devices:
        stratagem.testing.virtual_devices(options.devices)

    strategy = STRATEGIES[options.strategy]()  # stands before all other use of JAX

    def say(*words: object) -> None:
        if strategy.is_chief:  # all workers have the same numbers, one says them
            print(*words, flush=True)

    say("Number of devices:", strategy.num_replicas_in_sync)

    (x_train, y_train), (x_test, y_test) = digits.load(options.data, "fashion_mnist.npz")
    global_batch_size = options.batch_size_per_replica * strategy.num_replicas_in_sync
    train_dataset = stratagem.data.Dataset.from_tensor_slices((x_train[..., None], y_train))
    train_dataset = train_dataset.shuffle(len(x_train)).batch(global_batch_size)
    test_dataset = stratagem.data.Dataset.from_tensor_slices((x_test[..., None], y_test)).batch(global_batch_size)
    train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)
    test_dist_dataset = strategy.experimental_distribute_dataset(test_dataset)

    with strategy.scope():
        # One loss for each example: how to scale them is for this program to say.
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
        test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
        model = create_model()
        optimizer = keras.optimizers.Adam()
        checkpoint = stratagem.train.Checkpoint(optimizer=optimizer, model=model)

    def compute_loss(labels: Any, predictions: Any) -> Any:
        """Return this replica's part of the loss: gradients are summed over the replicas."""
        return stratagem.nn.compute_average_loss(loss_object(labels, predictions))

    def train_step(inputs: tuple[Any, Any]) -> Any:
        images, labels = inputs
        with stratagem.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = compute_loss(labels, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs: tuple[Any, Any]) -> None:
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @stratagem.function
    def distributed_train_step(inputs: Any) -> Any:
        per_replica_losses = strategy.run(train_step, args=(inputs,))
        return strategy.reduce(stratagem.ReduceOp.SUM, per_replica_losses, axis=None)

    @stratagem.function
    def distributed_test_step(inputs: Any) -> None:
        strategy.run(test_step, args=(inputs,))

    saved = 0.0
    for epoch in range(options.epochs):
        total_loss, num_batches = 0.0, 0
        for inputs in train_dist_dataset:
            total_loss += distributed_train_step(inputs)
            num_batches += 1
        for inputs in test_dist_dataset:
            distributed_test_step(inputs)
        say(
            f"Epoch {epoch + 1}, Loss: {total_loss / num_batches:.5f}, Accuracy: {percent(train_accuracy):.3f}, "
            f"Test Loss: {test_loss.result():.5f}, Test Accuracy: {percent(test_accuracy):.3f}"
        )
        if epoch % 2 == 0:  # epochs 1, 3, 5 ...
            checkpoint.save(options.checkpoints / "ckpt")  # every worker calls it, one file appears
            saved = percent(test_accuracy)
        for metric in (test_loss, train_accuracy, test_accuracy):
            metric.reset_state()

    restored = accuracy_without_strategy(options.checkpoints, test_dataset)
    say("Accuracy after restoring the saved model without strategy:", restored)
    say("Accuracy when it was saved:", saved)

    # The same epoch, with an iterator: as many steps as one likes.
    train_iterator = iter(train_dist_dataset)
    total_loss = 0.0
    for _ in range(10):
        total_loss += distributed_train_step(next(train_iterator))
    train_iterator.close()
    say(f"Ten steps of an iterator, Loss: {total_loss / 10:.5f}, Accuracy: {percent(train_accuracy):.3f}")
    train_accuracy.reset_state()

    # And with the whole epoch in one function.
    @stratagem.function
    def distributed_train_epoch(dataset: stratagem.DistributedDataset) -> Any:
        total_loss, num_batches = 0.0, 0
        for inputs in dataset:
            per_replica_losses = strategy.run(train_step, args=(inputs,))
            total_loss += strategy.reduce(stratagem.ReduceOp.SUM, per_replica_losses, axis=None)
            num_batches += 1
        return total_loss / num_batches

    loss = distributed_train_epoch(train_dist_dataset)
    say(f"An epoch inside a function, Loss: {loss:.5f}, Accuracy: {percent(train_accuracy):.3f}")


if __name__ == "__main__":
    main()
