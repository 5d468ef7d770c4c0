"""Losses and metrics of complex numbers: numbers and gradients of tf-keras 2.21."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

TARGETS = np.array([[1 + 2j, 3 - 1j], [0.5j, -2.0]], np.complex64)
OUTPUTS = np.array([[0.5 + 1j, 1 + 1j], [1 - 0.5j, 2j]], np.complex64)
WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0], "float32")
SPECTRUM = np.array([0.5 + 1j], np.complex64)


@pytest.mark.parametrize(
    ("name", "mean", "rows", "real_targets"),
    [
        ("MeanAbsoluteError", 2.0472755, [1.9732306, 2.1213202], 2.2757459),
        ("MeanSquaredError", 4.8125, [4.625, 5.0], 6.2571630),
    ],
)
def test_imaginary_parts_count(name: str, mean: float, rows: list[float], real_targets: float) -> None:
    kind = getattr(tf.keras.losses, name)
    assert float(kind()(TARGETS, OUTPUTS)) == pytest.approx(mean)
    np.testing.assert_allclose(kind(reduction="none")(TARGETS, OUTPUTS), rows, rtol=1e-6)
    assert float(kind()(np.abs(OUTPUTS), TARGETS)) == pytest.approx(real_targets)
    weighted = float(kind()(TARGETS, OUTPUTS, sample_weight=[1.0, 3.0]))
    assert weighted == pytest.approx((rows[0] + 3 * rows[1]) / 2)
    function = getattr(tf.keras.losses, kind().name)
    np.testing.assert_allclose(function(TARGETS, OUTPUTS), rows, rtol=1e-6)
    np.testing.assert_allclose(tf.keras.losses.get(kind().name)(TARGETS, OUTPUTS), rows, rtol=1e-6)


GRADIENTS = [
    ("MeanAbsoluteError", [0.2981424, -0.0351909, 0.2981424, 0.6314757]),
    ("MeanSquaredError", [1.3333334, -1.3333333, 1.3333334, 4.0]),
]


@pytest.mark.parametrize(("name", "expected"), GRADIENTS)
def test_gradients_of_spectra(name: str, expected: list[float]) -> None:
    loss, variable = getattr(tf.keras.losses, name)(), tf.Variable(WEIGHTS)
    with tf.GradientTape() as tape:
        value = loss(tf.signal.rfft(variable), SPECTRUM)
    np.testing.assert_allclose(tape.gradient(value, variable), expected, rtol=1e-5)


def test_a_loss_in_run() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        variable, loss = tf.Variable(WEIGHTS), tf.keras.losses.MeanAbsoluteError(reduction="none")

    @tf.function
    def step() -> Any:
        def gradients() -> Any:
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(loss(tf.signal.rfft(variable), SPECTRUM))
            return value, tape.gradient(value, variable)

        return strategy.run(gradients)

    value, gradient = (strategy.experimental_local_results(each)[1] for each in step())
    assert float(value) == pytest.approx(2.4120226)
    np.testing.assert_allclose(gradient, GRADIENTS[0][1], rtol=1e-5)


class Spectrum(tf.keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")

    def call(self, x: Any) -> Any:
        return tf.signal.rfft(x * self.scale)


class OwnLoss(tf.keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.abs(y_true - y_pred), axis=-1)


ABSOLUTE = [3.2385037, 2.5200217], [1.0348822, 1.0805253, 0.9969586, 0.4986509]
SQUARED = [12.5833330, 8.0230360], [1.3005555, 0.1199998, 0.9619445, 0.5866669]


@pytest.mark.parametrize("replicas", [0, 2])
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("mae", ABSOLUTE),
        (tf.keras.losses.MeanAbsoluteError(), ABSOLUTE),
        (lambda y_true, y_pred: tf.abs(y_true - y_pred), ABSOLUTE),
        (OwnLoss(), ABSOLUTE),
        ("mse", SQUARED),
        (tf.keras.losses.mean_squared_error, SQUARED),
    ],
    ids=["mae", "MeanAbsoluteError", "function", "OwnLoss", "mse", "mean_squared_error"],
)
def test_fit_trains_on_spectra(loss: Any, expected: Any, replicas: int) -> None:
    devices = [f"cpu:{i}" for i in range(replicas)]
    scope: Any = tf.distribute.MirroredStrategy(devices).scope() if replicas else contextlib.nullcontext()
    with scope:
        model = tf.keras.Sequential([Spectrum()])
        model.compile(tf.keras.optimizers.SGD(0.1), loss)
    targets = np.tile(np.array([1 + 1j, 2.0, 3 - 1j], np.complex64), (2, 1))
    losses = model.fit(np.tile(WEIGHTS, (2, 1)), targets, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, expected[0], rtol=2e-6)
    np.testing.assert_allclose(model.get_weights()[0], expected[1], atol=1e-6)


@pytest.mark.parametrize("replicas", [0, 2])
def test_metrics_take_real_parts_and_say_so(replicas: int, capsys: Any) -> None:
    devices = [f"cpu:{i}" for i in range(replicas)]
    scope: Any = tf.distribute.MirroredStrategy(devices).scope() if replicas else contextlib.nullcontext()
    name = f"of spectra, {replicas}"
    with scope:
        model = tf.keras.Sequential([Spectrum()])
        metrics = [tf.keras.metrics.MeanSquaredError(name=name), tf.keras.metrics.MeanAbsoluteError()]
        model.compile("sgd", "mae", metrics=metrics)
    rows = np.array([[1, 2, 3, 4], [1, 1, 1, 1]], "float32")
    _, squared, absolute = model.evaluate(rows, np.zeros((2, 3), np.complex64), verbose=0)
    assert (squared, absolute) == pytest.approx(((100 + 4 + 4 + 16) / 6, (10 + 2 + 2 + 4) / 6))  # of tf-keras
    assert f"MeanSquaredError '{name}' takes the real parts of complex numbers" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["LogCosh", "MeanAbsolutePercentageError", "CosineSimilarity", "Poisson"])
def test_losses_of_real_numbers_refuse_complex_ones(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} was given complex outputs(.|\n)*tf.abs\(y\)"):
        getattr(tf.keras.losses, name)()(TARGETS, OUTPUTS)
