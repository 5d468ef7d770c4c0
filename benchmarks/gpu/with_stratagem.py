"""A network under MirroredStrategy, on all devices that there are: `with_stratagem.py DATA STEPS NETWORK PLACE ROWS`.

With one more argument, `dataset`, the images are made in a stratagem.data.Dataset; else they lie on the devices.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from in_keras import compiled, rows_of_an_epoch
from turns import Turns, fit_in_turns
from workloads import SEED, WORKLOADS

import stratagem
from stratagem import keras
from stratagem.data import AUTOTUNE, Dataset

MARGIN = 32
"""Pixels that an image of the dataset has beyond those that are cut out of it, along each edge."""

name, place, rows = sys.argv[3], sys.argv[4], int(sys.argv[5])
from_dataset = sys.argv[6:] == ["dataset"]
size = WORKLOADS[name].size_on(place, rows)
strategy = stratagem.MirroredStrategy()
devices = strategy.mesh.devices
versions = {"stratagem": stratagem.__version__, "keras": keras.__version__, "jax": jax.__version__}
turns = Turns(**versions, device=devices[0].device_kind)
x, y = turns.inputs_and_targets(rows)
global_batch = rows * strategy.num_replicas_in_sync
with strategy.scope():
    model = compiled(keras, name, size, x if name == "resnet50" and not from_dataset else None)


def made_images() -> Dataset:
    """Return batches of images, each cut out of a larger one at a random place, and perhaps turned round."""
    large = np.pad(x, ((0, 0), (0, MARGIN), (0, MARGIN), (0, 0)), mode="wrap")

    def make(number: int) -> tuple[np.ndarray, np.integer]:
        rng = np.random.default_rng((SEED, int(number)))
        row, (down, right) = int(number) % rows, rng.integers(0, MARGIN + 1, 2)
        image = large[row, down : down + size.length, right : right + size.length]
        return np.ascontiguousarray(image[:, ::-1] if rng.random() < 0.5 else image), y[row]

    numbers = Dataset.range(turns.steps * global_batch).repeat()
    return numbers.map(make, num_parallel_calls=AUTOTUNE).batch(global_batch).prefetch(AUTOTUNE)


if from_dataset:
    fit_in_turns(keras, model, turns, made_images(), steps_per_epoch=turns.steps)
else:
    inputs, targets = rows_of_an_epoch(x, y, name, turns.steps * global_batch)
    fit_in_turns(keras, model, turns, inputs, targets, batch_size=global_batch, shuffle=False)
