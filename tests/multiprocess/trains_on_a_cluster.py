"""A program as users write it: it names no cluster. It prints what it trained."""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import stratagem
from stratagem import keras

strategy = stratagem.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.random.default_rng(0).normal(size=(320, 20)).astype("float32")
history = model.fit(x, x[:, :1], batch_size=32, epochs=2, verbose=0)
resolver = strategy.cluster_resolver
if f"--fail={resolver.task_id}" in sys.argv:
    raise RuntimeError("as it was asked to")
told = {
    "task": [resolver.task_type, resolver.task_id],
    "workers": resolver.cluster_spec().as_dict()["worker"],
    "replicas": strategy.num_replicas_in_sync,
    "loss": history.history["loss"],
    "weights": float(sum(np.abs(weight).sum(dtype="float64") for weight in model.get_weights())),
    "secret": "STRATAGEM_SECRET" in os.environ or "STRATAGEM_SECRET_FILE" in os.environ,
    "arguments": sys.argv[1:],
}
print(json.dumps(told))
