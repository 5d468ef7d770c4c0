"""Handwritten digits on all devices of one machine: `single_device.py` and the lines marked `differs`.

Run it:
    python examples/mirrored.py                # all GPUs; without any, the CPU
    python examples/mirrored.py --devices 2    # two virtual CPU devices, to try it without GPUs
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
        optimizer=keras.optimizers.Adam(learning_rate=0.001),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    parser.add_argument("--devices", type=int, help="virtual CPU devices, to try it without GPUs")
    options = parser.parse_args()
    if options.devices:
        stratagem.testing.virtual_devices(options.devices)

    strategy = stratagem.MirroredStrategy()  # differs

    (x_train, y_train), (x_test, y_test) = digits.load(options.data)
    batch_size = 64 * strategy.num_replicas_in_sync  # differs: 64 for each replica

    with strategy.scope():  # differs
        model = make_model()

    model.fit(x_train, y_train, batch_size=batch_size, epochs=options.epochs)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=batch_size)
    print(f"On digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")


if __name__ == "__main__":
    main()
