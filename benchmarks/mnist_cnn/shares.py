"""Workers with ROWS rows each: `shares.py DATA STEPS ROWS [alone]`.

With `alone` each worker trains a model of its own and meets nobody: what the same processes cost without exchange.
"""

from __future__ import annotations

import os
import sys

import jax
from network import compiled_network
from turns import Turns, fit_in_turns

import stratagem
from stratagem import keras

alone = "alone" in sys.argv or "TF_CONFIG" not in os.environ
strategy = stratagem.OneDeviceStrategy("cpu:0") if alone else stratagem.MultiWorkerMirroredStrategy()
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
global_batch = int(sys.argv[3]) * strategy.num_replicas_in_sync
x, y = turns.rows(global_batch)
with strategy.scope():
    model = compiled_network(keras)
fit_in_turns(keras, model, turns, x, y, batch_size=global_batch, shuffle=False)
