"""A network in TensorFlow with `tf_keras`: `with_tensorflow.py DATA STEPS NETWORK`; with TF_CONFIG on all workers."""

from __future__ import annotations

import os
import sys

import tensorflow as tf  # pyright: ignore[reportMissingImports]
import tf_keras  # pyright: ignore[reportMissingImports]
from catalogue import NETWORKS, compiled, wgan_model
from turns import Turns, fit_in_turns

network = NETWORKS[sys.argv[3]]
if "TF_CONFIG" in os.environ:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()
turns = Turns(tensorflow=tf.__version__, tf_keras=tf_keras.__version__)
rows = network.rows * strategy.num_replicas_in_sync
x, y = turns.inputs_and_targets(rows)
# Repeated, so that fit keeps one iterator: a new one for each epoch would be slower.
dataset = tf.data.Dataset.from_tensor_slices((x, y) if network.make else x).repeat().batch(rows, drop_remainder=True)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    model = compiled(tf_keras, network) if network.make else wgan_model(tf, tf_keras)
dataset = dataset.with_options(options).prefetch(2)
fit_in_turns(tf_keras, model, turns, dataset, steps_per_epoch=turns.steps)
