"""Keras' own DataParallel on JAX: its collectives are XLA's, over Gloo.

By hand: who is who, as Keras has no launcher and knows no TF_CONFIG; and the rows of each process, as Keras divides
only datasets of `tf.data` and refuses arrays unless `auto_shard_dataset=False` says that they are divided.

https://keras.io/api/distribution/
"""

from __future__ import annotations

import json
import os

import jax
import keras
import numpy as np
from network import ROWS_PER_WORKER, compiled_network
from turns import Turns, fit_in_turns

turns = Turns(keras=keras.__version__, jax=jax.__version__)  # first: Gloo would print into its answers
tf_config = json.loads(os.environ["TF_CONFIG"])
workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
keras.distribution.initialize(workers[0], len(workers), rank)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))


def share(rows: np.ndarray) -> np.ndarray:
    """Return the rows of this process: its part of every global batch, one after another."""
    parts = rows.reshape(turns.steps, len(workers), ROWS_PER_WORKER, *rows.shape[1:])
    return np.concatenate(parts[:, rank])


x, y = map(share, turns.rows(ROWS_PER_WORKER * len(workers)))
fit_in_turns(keras, compiled_network(keras), turns, x, y, batch_size=ROWS_PER_WORKER, shuffle=False)
