"""Losses of shares: their sum over replicas is the loss of the batch, also where it does not divide."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError

Y = np.array([[1.0], [0.0], [2.0], [1.0], [3.0]], "float32")
P = np.array([[0.5], [0.5], [1.0], [2.0], [1.0]], "float32")
SQUARES = (Y - P)[:, 0] ** 2
"""0.25, 0.25, 1, 1 and 4."""


def loss_of(replicas: int, loss: Any, weights: np.ndarray | None = None) -> float:
    """Return the loss that `fit` reports for one batch whose outputs are P."""
    with stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), loss)
    history = model.fit(P, Y, sample_weight=weights, batch_size=5, shuffle=False, verbose=0).history
    return float(history["loss"][0])


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_mean_and_a_sum(replicas: int) -> None:
    assert loss_of(replicas, keras.losses.MeanSquaredError()) == pytest.approx(1.3)
    assert loss_of(replicas, keras.losses.MeanSquaredError(reduction="sum")) == pytest.approx(6.5)


class OwnStep(keras.Sequential):
    """A step with a tape, whose target has a number for each row."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with stratagem.GradientTape() as tape:
            losses = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(losses, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": losses.mean()}


@pytest.mark.parametrize("kind", [keras.Sequential, OwnStep])
@pytest.mark.parametrize("replicas", [0, 1, 2, 4])
def test_a_loss_for_each_row_trains_with_their_sum(replicas: int, kind: type[keras.Sequential]) -> None:
    """As in TensorFlow, whose gradient of several numbers is that of their sum. What is shown is their mean."""
    scope = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope() if replicas else nullcontext()
    with scope:
        layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        model = kind([keras.Input((1,)), *layers])
        model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError(reduction=None))
    assert model.evaluate(P, Y, batch_size=5, verbose=0) == pytest.approx(1.3)
    history = model.fit(P, Y, batch_size=5, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(1.3)
    slope = 2 * float(((P - Y) * P).sum())
    np.testing.assert_allclose(model.get_weights()[0], [[1 - 0.01 * slope]], rtol=1e-6)


@pytest.mark.parametrize("replicas", [0, 1, 2, 4])
def test_a_loss_for_each_row_has_the_numbers_of_keras_with_tensorflow(replicas: int) -> None:
    """Numbers of Keras 3.15 with TensorFlow 2.21; the last batch has three rows. Keras 2's mean counts it less."""
    x, y = np.concatenate([P, [[2.0], [4.0]]]), np.concatenate([Y, [[5.0], [1.0]]])
    scope = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope() if replicas else nullcontext()
    with scope:
        layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        model = keras.Sequential([keras.Input((1,)), *layers])
        model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError(reduction=None))
    assert model.evaluate(x, y, batch_size=4, verbose=0) == pytest.approx(3.5)
    history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    assert history["loss"] == pytest.approx([3.4783427715301514, 3.395315170288086])
    np.testing.assert_allclose(model.get_weights()[0], [[0.86111605]], rtol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_mean_by_sample_weights(replicas: int) -> None:
    weights = np.array([4.0, 0.0, 1.0, 1.0, 2.0], "float32")
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    assert loss_of(replicas, loss, weights) == pytest.approx((4 * 0.25 + 1 + 1 + 2 * 4) / 8)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_mean_over_unmasked_entries(replicas: int) -> None:
    x = np.array([[1, 0, 0], [2, 3, 0], [1, 2, 3], [0, 0, 0]], "int32")
    with stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope():
        embedding = keras.layers.Embedding(4, 1, mask_zero=True, embeddings_initializer="ones")
        model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    y = np.arange(12.0, dtype="float32").reshape(4, 3, 1)
    expected = ((y[..., 0] - 1) ** 2)[x > 0].mean()
    history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean", "mean_with_sample_weight"])
def test_a_mean_inside_run_is_refused(reduction: str) -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    with pytest.raises(InputError, match=f"reduction='{reduction}' was called inside strategy.run"):
        strategy.run(lambda: loss(Y, P))
    total = keras.losses.MeanSquaredError(reduction="sum")
    sums = strategy.experimental_local_results(strategy.run(lambda: total(Y, P)))
    assert [float(each) for each in sums] == [6.5, 6.5]


def test_a_circle_loss_compares_rows_of_all_replicas() -> None:
    labels = np.array([0, 1, 0, 1], "int32")
    points = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.6, 0.8]], "float32")
    expected = float(keras.losses.Circle()(labels, points))
    for replicas in (1, 2, 4):
        with stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
            model.compile("sgd", keras.losses.Circle())
        assert model.evaluate(points, labels, batch_size=4, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_copies_of_a_synchronized_layer_are_synchronized() -> None:
    """Its `_moments` lies on the instance, and goes neither to a copy nor to a file."""
    stratagem.OneDeviceStrategy("cpu:0")
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(synchronized=True)])
    x = np.array([[0.0, 1.0], [2.0, 3.0]], "float32")
    expected = np.asarray(model(x, training=True))
    for again in (keras.models.clone_model(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        layer = again.layers[0]
        assert layer.synchronized
        assert layer._moments.args == (layer,)
        np.testing.assert_array_equal(np.asarray(again(x, training=True)), expected)
    assert not hasattr(keras.layers.BatchNormalization()._moments, "args")
