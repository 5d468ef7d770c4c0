"""A small model, where what surrounds a step costs more than it: `fit.py DATA STEPS keras|stratagem AT_A_TIME`."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import jax
from turns import Turns, fit_in_turns

import stratagem
from stratagem import keras

ROWS = 32
kind, steps_per_execution = sys.argv[3], int(sys.argv[4])
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
x, y = turns.rows(ROWS)
keras.utils.set_random_seed(1)
with stratagem.OneDeviceStrategy("cpu:0").scope() if kind == "stratagem" else nullcontext():
    model = keras.Sequential(
        [
            keras.layers.InputLayer((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
fit_in_turns(keras, model, turns, x, y, batch_size=ROWS, shuffle=False)
