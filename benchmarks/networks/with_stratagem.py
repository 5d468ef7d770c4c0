"""A network under Stratagem: `with_stratagem.py DATA STEPS NETWORK`; on all workers of TF_CONFIG where it is set."""

from __future__ import annotations

import os
import sys

import jax
from catalogue import NETWORKS, compiled, wgan_model
from turns import Turns, fit_in_turns

import stratagem
import stratagem.tf as tf
from stratagem import keras

network = NETWORKS[sys.argv[3]]
if "TF_CONFIG" in os.environ:
    strategy = stratagem.MultiWorkerMirroredStrategy()
else:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
rows = network.rows * strategy.num_replicas_in_sync
x, y = turns.inputs_and_targets(rows)
with strategy.scope():
    model = compiled(keras, network) if network.make else wgan_model(tf, keras)
data = (x, y) if network.make else (x,)
fit_in_turns(keras, model, turns, *data, batch_size=rows, shuffle=False)
