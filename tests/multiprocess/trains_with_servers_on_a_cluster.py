"""A program with parameter servers as users write it: it names no cluster. Its chief prints what it trained."""

from __future__ import annotations

import json

import numpy as np

import stratagem
from stratagem import keras

strategy = stratagem.ParameterServerStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


def dataset_fn(context: stratagem.InputContext) -> stratagem.data.Dataset:
    x = np.random.default_rng(0).normal(size=(320, 20)).astype("float32")
    return stratagem.data.Dataset.from_tensor_slices((x, x[:, :1])).repeat().batch(32)


history = model.fit(stratagem.experimental.DatasetCreator(dataset_fn), steps_per_epoch=10, epochs=2, verbose=0)
cluster = strategy.cluster_resolver.cluster_spec().as_dict()
print(json.dumps({"cluster": cluster, "loss": history.history["loss"]}))
