"""Two workers train the network of TensorFlow's tutorial "Multi-worker training with Keras".

Run it:
    stratagem run --workers 2 examples/multi_worker.py

Every worker runs this program; what differs from a program for one device is marked `differs`. It runs as well when
the workers are started by hand, each with its own TF_CONFIG (docs/launching.md).
"""

from __future__ import annotations

import argparse
import os

import digits

import stratagem  # differs
from stratagem import keras  # differs


def make_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.InputLayer(shape=(28, 28)),
            keras.layers.Reshape(target_shape=(28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=70, help="steps in an epoch")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    parser.add_argument("--backup", help="folder for backups: started again after a failure, training goes on there")
    options = parser.parse_args()

    strategy = stratagem.MultiWorkerMirroredStrategy()  # differs; stands before all other use of JAX

    (x_train, y_train), (x_test, y_test) = digits.load(options.data)
    global_batch_size = 64 * strategy.num_replicas_in_sync  # differs: 64 for each replica
    dataset = stratagem.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shuffle(60000).repeat().batch(global_batch_size)

    with strategy.scope():  # differs
        model = make_model()

    callbacks = [stratagem.callbacks.BackupAndRestore(options.backup, save_freq=30)] if options.backup else []
    model.fit(dataset, epochs=options.epochs, steps_per_epoch=options.steps, callbacks=callbacks)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=global_batch_size)
    if strategy.is_chief:  # differs: all workers have the result, one says it
        print(f"On digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")
        if options.epochs * options.steps < 800:
            print("The tutorial's learning rate is small and this was its beginning: --epochs 12 reaches about 90%.")


if __name__ == "__main__":
    main()
