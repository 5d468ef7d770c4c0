"""The same under Stratagem: one replica without TF_CONFIG, one on each worker with it.

A third argument is the number of steps between two backups.
"""

from __future__ import annotations

import os
import sys
import tempfile

import jax
from network import ROWS_PER_WORKER, compiled_network
from turns import Turns, fit_in_turns

import stratagem
from stratagem import keras

if "TF_CONFIG" in os.environ:
    strategy = stratagem.MultiWorkerMirroredStrategy()
else:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
global_batch = ROWS_PER_WORKER * strategy.num_replicas_in_sync
x, y = turns.rows(global_batch)
with strategy.scope():
    model = compiled_network(keras)
with tempfile.TemporaryDirectory() as folder:
    backups = [stratagem.callbacks.BackupAndRestore(folder, save_freq=int(every)) for every in sys.argv[3:]]
    fit_in_turns(keras, model, turns, x, y, callbacks=backups, batch_size=global_batch, shuffle=False)
