"""What it costs to keep variables at a centre, and what it saves: CentralStorageStrategy beside MirroredStrategy.

The MNIST network of TensorFlow's tutorials with Adam, on virtual CPU devices of one process. Prints how much of
variables and optimizer state lies on one compute device between two steps, and the time of a step; the strategies
take turns, so that a ratio compares neighbours in time.
Run `python benchmarks/central_storage.py [--devices N] [--rounds N] [--steps N]`.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import stratagem
from stratagem import keras

ROWS = 64
"""Rows of a batch for each replica."""


def compiled(strategy: stratagem.Strategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.InputLayer(shape=(28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.Adam(), loss=loss, metrics=["accuracy"])
    return model


def seconds_of_epoch(model: keras.Model, data: tuple[np.ndarray, np.ndarray], rows: int) -> float:
    start = time.perf_counter()
    model.fit(*data, batch_size=rows, epochs=1, shuffle=False, verbose=0)
    return time.perf_counter() - start


def bytes_on(device: int, model: keras.Model) -> int:
    """Return how many bytes of the model's variables and its optimizer's lie on a device."""
    values = [variable.value for variable in [*model.variables, *model.optimizer.variables]]
    return sum(value.nbytes for value in values if device in {d.id for d in value.devices()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2, help="virtual devices that compute")
    parser.add_argument("--rounds", type=int, default=7, help="the median of so many is shown")
    parser.add_argument("--steps", type=int, default=10, help="steps of a round")
    arguments = parser.parse_args()
    devices, steps = arguments.devices, arguments.steps
    stratagem.testing.virtual_devices(devices + 1)
    names = [f"cpu:{i}" for i in range(devices)]
    rows = ROWS * devices
    rng = np.random.default_rng(0)
    data = rng.random((rows * steps, 28, 28, 1), np.float32), rng.integers(0, 10, rows * steps).astype(np.int32)
    models = {
        "MirroredStrategy": compiled(stratagem.MirroredStrategy(names)),
        "CentralStorageStrategy": compiled(stratagem.CentralStorageStrategy(names, f"cpu:{devices}")),
    }
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(arguments.rounds + 1):  # the first compiles
        for name, model in models.items():
            seconds = seconds_of_epoch(model, data, rows)
            if turn:
                times[name].append(seconds / steps)
    mirrored = times["MirroredStrategy"]
    print(f"{devices} virtual devices, {steps} steps a round, {arguments.rounds} rounds; on one device between steps:")
    for name, model in models.items():
        ratio = statistics.median(own / other for own, other in zip(times[name], mirrored, strict=True))
        held = bytes_on(0, model) / 2**20
        print(f"{name:23} {held:6.1f} MiB {1000 * statistics.median(times[name]):8.1f} ms/step  ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
