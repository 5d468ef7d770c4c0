"""Single cases worth a test of their own, beside the table."""

# Keras's arguments bear the types of their defaults: `verbose` that of "auto".
# pyright: reportArgumentType=false

from __future__ import annotations

import contextlib
import inspect

import keras
import numpy as np
import pytest
from keras import layers
from tests.conformance import inputs, models
from tests.conformance.runs import mirrored, reference
from tests.conformance.table import ROWS, run


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_three_rows_on_two_replicas_count_alike(replicas: int) -> None:
    """Errors 1, 1 and 4, SGD with rate 1: the bias moves by the mean gradient, 4, and not by the mean of means, 5."""
    with mirrored(replicas).scope():
        model = keras.Sequential([keras.Input((1,)), layers.Dense(1, kernel_initializer="zeros")])
        model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    x, y = np.zeros((3, 1), "float32"), np.array([[-1.0], [-1.0], [-4.0]], "float32")
    history = model.fit(x, y, batch_size=3, epochs=1, shuffle=False, verbose=0).history
    assert float(model.layers[0].bias[0]) == pytest.approx(-4.0, rel=1e-6)
    assert history["loss"] == [pytest.approx(6.0, rel=1e-6)]


def _eager_weights(replicas: int | None) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    with mirrored(replicas).scope() if replicas else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((models.FEATURES,)), layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", run_eagerly=True)
    x, _ = inputs.labelled(7)
    model.fit(x, x[:, :1], batch_size=4, epochs=1, shuffle=False, verbose=0)
    return [np.asarray(variable.value) for variable in model.trainable_variables]


@pytest.mark.thorough
@pytest.mark.parametrize("replicas", [1, 2])
def test_run_eagerly(replicas: int) -> None:
    """A batch that divides and one that does not. Steps that are not compiled are slow, so these are few."""
    for value, expected in zip(_eager_weights(replicas), _eager_weights(None), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def _optimizer_values(record: dict[str, np.ndarray], name: str) -> list[float]:
    """Return a value of the loss scale's optimizer, then of the one inside it, as far as they have it."""
    return [float(value) for entry, value in record.items() if entry.startswith("optimizer/") and entry.endswith(name)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_loss_scale_shrinks_and_grows_alike(replicas: int) -> None:
    """One row of one replica overflows: all replicas leave the update out and halve the scale."""
    name = "loss scale shrinks and grows"
    record, expected = run(ROWS[name], mirrored(replicas)), reference(name)
    for value in ("dynamic_scale", "step_counter", "iteration"):
        assert _optimizer_values(record, value) == _optimizer_values(expected, value) != []
    # 3 epochs of 7 steps: one overflow in each.
    assert max(_optimizer_values(expected, "iteration")) == 18


def test_every_metric_of_keras_is_in_the_table() -> None:
    groups = [models.binary_metrics, models.one_hot_metrics, models.sparse_metrics, models.regression_metrics]
    measured = {type(metric).__name__ for group in groups for metric in group()}
    public = {name for name, value in vars(keras.metrics).items() if inspect.isclass(value)}
    # The base class, and two that no `compile` takes: own_train_step uses them.
    assert public - measured == {"Metric", "Mean", "Sum"}
