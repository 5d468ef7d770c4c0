"""TensorFlow's ParameterServerStrategy with Keras 2 (`tf_keras`): `fit`, or a loop with a third argument `loop`."""

from __future__ import annotations

import sys

import tensorflow as tf  # pyright: ignore[reportMissingImports]
import tf_keras  # pyright: ignore[reportMissingImports]
from network import ROWS_PER_WORKER, compiled_network
from parameter_servers import loop_in_turns
from turns import Turns, fit_in_turns

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    # The tutorial's setting for machines with few cores: with fewer threads functions wait for one another for ever.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
    tf.distribute.Server(
        resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc", config=config
    ).join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
turns = Turns(tensorflow=tf.__version__, tf_keras=tf_keras.__version__)
dataset_of = tf.data.Dataset.from_tensor_slices
with strategy.scope():
    model = compiled_network(tf_keras)
if "loop" in sys.argv:
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    loop_in_turns(tf, tf_keras, strategy, coordinator, model, turns, dataset_of)
else:
    dataset = dataset_of(turns.rows(ROWS_PER_WORKER)).repeat().batch(ROWS_PER_WORKER)
    fit_in_turns(tf_keras, model, turns, dataset, steps_per_epoch=turns.steps)
