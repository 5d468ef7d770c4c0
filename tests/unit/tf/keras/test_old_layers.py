"""What programs for Keras 2 give layers: arguments by position, names, weights and shapes that Keras 3 refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

X = np.arange(6, dtype="float32").reshape(2, 3)


class Scaled(tf.keras.layers.Layer):
    """A layer with arguments of its own, which a program gives by position."""

    def call(self, inputs: Any, training: bool = False, factor: float = 1.0, shift: Any = None) -> Any:
        shift = 0.0 if shift is None else shift
        return inputs * factor * (10.0 if training else 1.0) + shift


class Encoder(tf.keras.layers.Layer):
    """A layer that hands on what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Scaled()
        self.dropout = tf.keras.layers.Dropout(0.5)

    def call(self, x: Any, training: Any, shift: Any) -> Any:
        return self.dropout(self.inner(x, training, 2.0, shift), False)


@pytest.mark.parametrize("compiled", [False, True])
def test_arguments_by_position(compiled: bool) -> None:
    encoder = Encoder()

    def run(x: Any) -> Any:
        return encoder(x, True, tf.ones([1]))

    np.testing.assert_array_equal((tf.function(run) if compiled else run)(tf.constant(X)), 20 * X + 1)
    assert encoder(X, False, None).numpy().tolist() == (2 * X).tolist()


def test_arguments_by_position_in_a_functional_model() -> None:
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, Scaled()(tf.keras.layers.BatchNormalization()(inputs, False), True, 3.0))
    np.testing.assert_allclose(model(X), 30 * X, rtol=1e-3)


def test_a_number_is_an_input() -> None:
    assert Scaled()(2.0).numpy() == 2.0
    added = tf.keras.layers.Add()([tf.ones([]), 2.0])
    assert added.numpy() == 3.0


def test_what_a_call_does_not_take_is_told() -> None:
    with pytest.raises(ValueError, match="Only input tensors may be passed as positional arguments"):
        tf.keras.layers.Flatten()(X, True)


class Weighted(tf.keras.layers.Layer):
    """A layer whose weights are added with Keras 2's arguments."""

    def build(self, input_shape: Any) -> None:
        self.first = self.add_weight("first", [3, 2], tf.float32, "ones", None, False)
        self.second = self.add_weight("second", (2,), initializer="ones")
        self.third = self.add_weight(shape=2, initializer="zeros", use_resource=True, experimental_autocast=False)
        self.built = True

    def call(self, x: Any) -> Any:
        return tf.matmul(x, self.first) + self.second + self.third


def test_weights_by_keras_2s_arguments() -> None:
    layer = Weighted()
    np.testing.assert_array_equal(layer(X), X.sum(1, keepdims=True) + np.ones((2, 2)))
    assert [(each.name, tuple(each.shape)) for each in (layer.first, layer.second)] == [
        ("first", (3, 2)),
        ("second", (2,)),
    ]
    assert [layer.first.trainable, layer.second.trainable] == [False, True]
    assert tuple(layer.third.shape) == (2,)
    with pytest.raises(InputError, match="synchronization=ON_READ"):
        layer.add_weight("sum", (), synchronization=tf.VariableSynchronization.ON_READ)


def test_a_sequential_model_that_has_an_input_is_built_for_any_shape() -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2)])
    model.build(input_shape=[1, 3])
    assert model.input_shape == (None, 3)
    later = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    later.build((None, 3))
    assert later(X).shape == (2, 2)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_averages_of_pairs(axes: int) -> None:
    layer = getattr(tf.keras.layers, f"AveragePooling{axes}D")()
    x = np.arange(4**axes, dtype="float32").reshape(1, *([4] * axes), 1)
    assert layer(x).shape == (1, *([2] * axes), 1)
    assert layer.get_config()["pool_size"] == (2,) * axes


def test_a_layer_of_ones_own_is_made_of_its_configuration() -> None:
    class Plain(tf.keras.layers.Layer):
        def __init__(self, units: int, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.units = units

    config = Plain(3, name="plain").get_config()
    assert (config["units"], config["name"]) == (3, "plain")
    assert Scaled().get_config()["trainable"] is True


class Masked(tf.keras.layers.Layer):
    """A layer that masks as many programs do: with a number that is too large for 32 bits."""

    def call(self, scores: Any) -> Any:
        padding = tf.ones_like(scores) * (-(2**32) + 1)
        return tf.where(tf.equal(scores, 0.0), padding, scores)


def test_numbers_beyond_32_bits_in_layers_of_the_program() -> None:
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, Masked()(inputs))
    row = [[1.0, 0.0, 2.0]]
    expected = [[1.0, -4294967296.0, 2.0]]
    assert model.predict(tf.constant(row), verbose=0).tolist() == expected
    assert model(tf.constant(row)).numpy().tolist() == expected
    assert Masked()(tf.constant(row)).numpy().tolist() == expected
    times = tf.keras.layers.Lambda(lambda x: x * (-(2**32) + 1))
    assert times(tf.constant(row)).numpy().tolist() == [[-4294967296.0, 0.0, -8589934592.0]]
