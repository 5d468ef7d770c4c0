"""The network in Keras, and the strategy of a stage, for whoever trains it under one."""

from __future__ import annotations

from network import CLASSES, EPSILON, LAYERS, LEARNING_RATE, WIDTH, first_weights

import stratagem
from stratagem import keras


def strategy_of(stage: str) -> stratagem.MultiWorkerMirroredStrategy:
    """Return the strategy for a value of `shard=`, or for `whole` state."""
    return stratagem.MultiWorkerMirroredStrategy(shard=None if stage == "whole" else stage)


def compiled(strategy: stratagem.Strategy) -> keras.Model:
    """Return the model, compiled, with the first weights that all have."""
    with strategy.scope():
        dense = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
        model = keras.Sequential([keras.Input((WIDTH,)), *dense, keras.layers.Dense(CLASSES)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(LEARNING_RATE, epsilon=EPSILON), loss)
    model.set_weights(first_weights())
    return model
