"""Keras on JAX as it comes, in one process."""

from __future__ import annotations

import jax
import keras
from network import ROWS_PER_WORKER, compiled_network
from turns import Turns, fit_in_turns

turns = Turns(keras=keras.__version__, jax=jax.__version__)
x, y = turns.rows(ROWS_PER_WORKER)
fit_in_turns(keras, compiled_network(keras), turns, x, y, batch_size=ROWS_PER_WORKER, shuffle=False)
