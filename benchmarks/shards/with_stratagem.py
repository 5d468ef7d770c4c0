"""The network under Stratagem: `with_stratagem.py DATA STEPS STAGE`, a value of `shard=`, or `whole`."""

from __future__ import annotations

import sys

import jax
from network import ROWS
from turns import Turns, fit_in_turns
from with_keras import compiled, strategy_of

import stratagem
from stratagem import keras

strategy = strategy_of(sys.argv[3])
turns = Turns(stratagem=stratagem.__version__, keras=keras.__version__, jax=jax.__version__)
rows = ROWS * strategy.num_replicas_in_sync
data = turns.rows(rows)
fit_in_turns(keras, compiled(strategy), turns, *data, batch_size=rows, shuffle=False)
