"""The same under Stratagem: one replica without TF_CONFIG, one on each worker with it."""

from __future__ import annotations

import os

import jax
import keras
from network import ROWS_PER_WORKER, compiled_network, fit_in_turns
from turns import Turns

import stratagem

if "TF_CONFIG" in os.environ:
    strategy = stratagem.MultiWorkerMirroredStrategy()
else:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
global_batch = ROWS_PER_WORKER * strategy.num_replicas_in_sync
x, y = turns.rows(global_batch)
with strategy.scope():
    model = compiled_network(keras)
fit_in_turns(keras, model, turns, x, y, batch_size=global_batch, shuffle=False)
