"""TensorFlow's MultiWorkerMirroredStrategy with Keras 2 (`tf_keras`), written as its tutorial is, without shuffling."""

from __future__ import annotations

import tensorflow as tf  # pyright: ignore[reportMissingImports]
import tf_keras  # pyright: ignore[reportMissingImports]
from network import ROWS_PER_WORKER, compiled_network
from turns import Turns, fit_in_turns

strategy = tf.distribute.MultiWorkerMirroredStrategy()
turns = Turns(tensorflow=tf.__version__, tf_keras=tf_keras.__version__)
global_batch = ROWS_PER_WORKER * strategy.num_replicas_in_sync
x, y = turns.rows(global_batch)
# Repeated, so that fit keeps one iterator: a new one for each epoch would be slower.
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(global_batch)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    model = compiled_network(tf_keras)
fit_in_turns(tf_keras, model, turns, dataset.with_options(options), steps_per_epoch=turns.steps)
