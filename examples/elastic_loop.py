"""A training loop of your own that continues when a worker is killed, and when one joins.

Run it:
    stratagem run --elastic 1:3 examples/elastic_loop.py                # continues with fewer workers
    stratagem run --workers 2 --spares 1 examples/elastic_loop.py       # a waiting process takes the place
    python examples/elastic_loop.py                                     # one process

To see it, kill a worker while it trains: `kill -9 PID`. With --kill-at 40 worker 1 kills itself behind step 40. With
`kill PID` a worker leaves between two steps. With `kill` and the PID of the launcher all leave, and save a checkpoint
from which the next run resumes.

It trains on MNIST where --data or STRATAGEM_DATA has `mnist.npz`, else on the digits inside Stratagem. docs/elastic.md
explains the loop.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import digits

import stratagem
from stratagem import keras

ROWS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    parser.add_argument("--kill-at", type=int, default=0, help="step behind which worker 1 kills itself; 0 for none")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder for a checkpoint")
    parser.add_argument("--killed", type=Path, default=Path("killed"), help="file that says that it has done so")
    options = parser.parse_args()

    strategy = stratagem.MultiWorkerMirroredStrategy()
    (x_train, y_train), (x_test, y_test) = digits.load(options.data, "mnist.npz")
    rows = stratagem.data.Dataset.from_tensor_slices((x_train[..., None], y_train)).shuffle(len(x_train), seed=1)
    train = strategy.experimental_distribute_dataset(rows.batch(ROWS))
    test = strategy.experimental_distribute_dataset(
        stratagem.data.Dataset.from_tensor_slices((x_test[..., None], y_test)).batch(ROWS)
    )

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((*x_train.shape[1:], 1)),
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)  # the state holds objects whose variables are there
        loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    loss_of_each = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def train_step(batch: Any) -> None:
        images, labels = batch
        with stratagem.GradientTape() as tape:
            losses = loss_of_each(labels, model(images, training=True))
            mean = stratagem.nn.compute_average_loss(losses)
        optimizer.apply_gradients(
            zip(tape.gradient(mean, model.trainable_variables), model.trainable_variables, strict=True)
        )
        loss.update_state(losses)

    def test_step(batch: Any) -> None:
        images, labels = batch
        accuracy.update_state(labels, model(images, training=False))

    def training_loop(state: Any) -> None:
        """Begin where the state says: at the start, or at the last commit."""
        while state.epoch < options.epochs:
            for batch in state.batches:
                strategy.run(train_step, args=(batch,))
                state.step += 1
                state.commit()  # the loop starts again from here when workers change
                if state.step == options.kill_at and strategy.worker_index == 1 and not options.killed.exists():
                    options.killed.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            accuracy.reset_state()
            for batch in test:
                strategy.run(test_step, args=(batch,))
            state.epoch += 1
            state.losses.append(float(loss.result()))
            if strategy.is_chief:
                print(
                    f"Epoch {state.epoch} with {strategy.num_replicas_in_sync} workers: loss {state.losses[-1]:.4f}, "
                    f"test accuracy {float(accuracy.result()):.4f}, {state.step} steps",
                    flush=True,
                )
            loss.reset_state()
            state.batches = iter(train)  # the next epoch, in another order

    state = stratagem.ElasticState(
        strategy,
        model=model,
        optimizer=optimizer,
        metrics=(loss, accuracy),
        batches=iter(train),
        epoch=0,
        step=0,
        losses=[],
    )
    checkpoint = stratagem.train.Checkpoint(state=state)
    manager = stratagem.train.CheckpointManager(checkpoint, options.checkpoints, max_to_keep=1)
    if manager.restore_or_initialize() and strategy.is_chief:
        print(f"Resumed behind step {state.step}", flush=True)
    state.run(training_loop, save=manager.save)  # it saves if the run ends before the loop does


if __name__ == "__main__":
    main()
