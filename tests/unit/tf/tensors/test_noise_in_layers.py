"""Random functions in layers: each step of `fit` draws anew."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.strategy.base import Strategy

STEPS = 4


class Noisy(tf.keras.layers.Layer):
    """Notes what it draws at each step."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drawn = self.add_weight(shape=(STEPS, 3), initializer="zeros", trainable=False)
        self.step = self.add_weight(shape=(), initializer="zeros", trainable=False, dtype="int32")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:  # not met before the step is compiled
            kept = tf.reduce_sum(tf.nn.dropout(tf.range(100.0), 0.5))
            row = [tf.random.normal(()), tf.random.uniform((), seed=4), kept]
            self.drawn.assign(self.drawn.value.at[self.step.value].set(tf.stack(row)))
            self.step.assign_add(1)
        return x


def fitted(strategy: Strategy | None) -> tf.keras.Model:
    tf.random.set_seed(5)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), Noisy(), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((STEPS, 1)), np.ones((STEPS, 1)), batch_size=1, verbose=0)
    return model


@pytest.mark.parametrize("strategy", [None, tf.distribute.OneDeviceStrategy("CPU:0")])
def test_each_step_draws_anew_and_a_seed_repeats_it(strategy: Strategy | None) -> None:
    model = fitted(strategy)
    drawn = np.asarray(model.layers[0].drawn)
    for column in drawn.T:
        assert len(set(column.tolist())) == STEPS
    np.testing.assert_array_equal(np.asarray(fitted(strategy).layers[0].drawn), drawn)


def test_models_have_no_variable_more() -> None:
    """Else their checkpoints would not fit the same models in programs that do not import `stratagem.tf`."""
    assert len(fitted(None).variables) == 4  # of Noisy and Dense, two each


def test_a_layer_of_symbolic_inputs_draws_by_their_shape() -> None:
    """The sampling layer of variational autoencoders."""

    class Sampling(tf.keras.layers.Layer):
        def call(self, mean: Any) -> Any:
            rows, columns = tf.shape(mean)[0], tf.shape(mean)[1]
            return mean + tf.random.normal(tf.shape(mean)) + tf.random.normal((rows, columns))

    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, Sampling()(inputs))
    assert model.output_shape == (None, 3)
    assert np.std(np.asarray(model(np.zeros((500, 3))))) == pytest.approx(np.sqrt(2), rel=0.1)
