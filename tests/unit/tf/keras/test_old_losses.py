"""Losses that a program calls itself in a scope: what TensorFlow 2.21 with tf_keras refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

Y = np.array([1.0, 0.0], "float32")


@pytest.fixture(params=["mirrored", "one device"])
def strategy(request: pytest.FixtureRequest) -> Any:
    if request.param == "mirrored":
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return tf.distribute.OneDeviceStrategy("CPU:0")


def test_a_mean_is_refused_in_a_scope(strategy: Any) -> None:
    loss = tf.keras.losses.MeanSquaredError()
    with strategy.scope(), pytest.raises(InputError, match=r"Please use `tf\.keras\.losses\.Reduction\.SUM` or "):
        loss(Y, Y)
    assert float(loss(Y, Y + 2)) == 4.0


def test_sums_and_losses_of_examples_are_not(strategy: Any) -> None:
    with strategy.scope():
        assert float(tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.SUM)(Y, Y + 2)) == 4.0
        each = tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.NONE)(Y[:, None], Y[:, None] + 2)
        assert np.asarray(each).tolist() == [4.0, 4.0]


def test_what_compile_was_given_may_be_a_mean_in_a_scope(strategy: Any) -> None:
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", tf.keras.losses.MeanSquaredError(), metrics=[tf.keras.losses.MeanAbsoluteError()])
        assert float(model.compute_loss(y=Y[:, None], y_pred=Y[:, None] + 2)) == 4.0
        x = np.full((4, 1), 3, "float32")
        assert model.evaluate(x, x - 2, verbose=0) == [4.0, 2.0]
        assert model.fit(x, x - 2, validation_data=(x, x - 3), epochs=1, verbose=0).history["loss"] == [4.0]


def test_targets_of_binary_crossentropy_are_broadcast(tmp_path: Any) -> None:
    outputs = np.array([[0.2, 0.4], [0.6, 0.8]], "float32")
    targets = np.array([[0.0], [1.0]], "float32")
    expected = [-np.log([0.8, 0.6]).mean(), -np.log([0.6, 0.8]).mean()]
    np.testing.assert_allclose(tf.keras.losses.binary_crossentropy(targets, outputs), expected, rtol=1e-5)
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Activation("linear")])
    model.compile("sgd", tf.keras.losses.binary_crossentropy)
    assert model.evaluate(outputs, targets, verbose=0) == pytest.approx(np.mean(expected))
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert again.evaluate(outputs, np.repeat(targets, 2, axis=1), verbose=0) == pytest.approx(np.mean(expected))
