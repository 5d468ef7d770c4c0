"""ResNet-18, the network of examples/resnet.py, under Stratagem: on one device, or on all workers of TF_CONFIG."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))

import jax
from resnet import make_resnet
from rows import ROWS_PER_WORKER, colour_rows
from turns import Turns, fit_in_turns

import stratagem
from stratagem import keras

if "TF_CONFIG" in os.environ:
    strategy = stratagem.MultiWorkerMirroredStrategy()
else:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
global_batch = ROWS_PER_WORKER * strategy.num_replicas_in_sync
x, labels = colour_rows(turns, global_batch)
keras.utils.set_random_seed(1)
with strategy.scope():
    model = make_resnet(image_size=x.shape[1], filters=64, blocks=2)
fit_in_turns(keras, model, turns, x, keras.utils.to_categorical(labels, 10), batch_size=global_batch, shuffle=False)
