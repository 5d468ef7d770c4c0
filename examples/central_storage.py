"""Handwritten digits on all devices of one machine, variables and optimizer state outside them: `mirrored.py`, and the
lines marked `differs`.

Run it:
    python examples/central_storage.py                # all GPUs, variables in the memory of the host
    python examples/central_storage.py --devices 2    # two virtual CPU devices and a third that holds the variables
"""

from __future__ import annotations

import argparse
import os

import digits

import stratagem
from stratagem import keras


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
    strategy = make_strategy(options.devices)  # differs

    (x_train, y_train), (x_test, y_test) = digits.load(options.data)
    batch_size = 64 * strategy.num_replicas_in_sync

    with strategy.scope():
        model = make_model()

    model.fit(x_train, y_train, batch_size=batch_size, epochs=options.epochs)
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=batch_size)
    print(f"On digits it has not seen: loss {loss:.4f}, accuracy {accuracy:.1%}.")
    report([*model.variables, *model.optimizer.variables])  # differs


def make_strategy(devices: int | None) -> stratagem.Strategy:  # differs
    if devices is None:
        return stratagem.CentralStorageStrategy()
    stratagem.testing.virtual_devices(devices + 1)
    return stratagem.CentralStorageStrategy([f"cpu:{i}" for i in range(devices)], parameter_device=f"cpu:{devices}")


def report(variables: list[keras.Variable]) -> None:  # differs
    places = {f"{device.platform}:{device.id}" for variable in variables for device in variable.value.devices()}
    megabytes = sum(variable.value.nbytes for variable in variables) / 1e6
    print(f"{megabytes:.1f} MB of variables and optimizer state, all on {', '.join(sorted(places))}.")


if __name__ == "__main__":
    main()
