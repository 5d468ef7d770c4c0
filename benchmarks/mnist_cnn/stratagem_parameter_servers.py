"""Stratagem's ParameterServerStrategy: `fit`, or a loop with a third argument `loop`."""

from __future__ import annotations

import sys

import jax
from network import ROWS_PER_WORKER, compiled_network
from parameter_servers import loop_in_turns
from turns import Turns, fit_in_turns

import stratagem
from stratagem import keras

strategy = stratagem.ParameterServerStrategy()
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
with strategy.scope():
    model = compiled_network(keras)
if "loop" in sys.argv:
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)
    dataset_of = stratagem.data.Dataset.from_tensor_slices
    loop_in_turns(stratagem, keras, strategy, coordinator, model, turns, dataset_of)
else:
    x, y = turns.rows(ROWS_PER_WORKER)
    fit_in_turns(keras, model, turns, x, y, batch_size=ROWS_PER_WORKER, shuffle=False)
