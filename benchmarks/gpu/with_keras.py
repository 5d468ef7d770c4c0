"""A network in plain Keras on JAX, on one device: `with_keras.py DATA STEPS NETWORK PLACE ROWS`."""

from __future__ import annotations

import sys

import jax
import keras
from in_keras import compiled, rows_of_an_epoch
from turns import Turns, fit_in_turns
from workloads import WORKLOADS

name, place, rows = sys.argv[3], sys.argv[4], int(sys.argv[5])
size = WORKLOADS[name].size_on(place, rows)
turns = Turns(keras=keras.__version__, jax=jax.__version__, device=jax.devices()[0].device_kind)
x, y = turns.inputs_and_targets(rows)
model = compiled(keras, name, size, x if name == "resnet50" else None)
inputs, targets = rows_of_an_epoch(x, y, name, turns.steps * rows)
fit_in_turns(keras, model, turns, inputs, targets, batch_size=rows, shuffle=False)
