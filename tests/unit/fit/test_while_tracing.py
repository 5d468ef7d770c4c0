"""What Keras computes otherwise while a step is traced, and only then and there."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.patches import PATCHES, Extent, during
from stratagem.fit import while_tracing

Y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], "float32")
P = np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.8], [0.3, 0.4]], "float32")


def strategy_of(replicas: int) -> Any:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def test_every_row_of_the_table_is_installed() -> None:
    strategy_of(1)
    while_tracing.install()  # once more, without effect
    names = [key for patch in PATCHES if patch.user == while_tracing.__name__ for key in patch.keys]
    assert "Optimizer.stateless_apply" in names
    assert {patch.extent for patch in PATCHES if patch.user == while_tracing.__name__} == {Extent.STEP}


def test_a_loss_is_keras_own_outside_a_step() -> None:
    strategy_of(2)
    own = keras.losses.Dice.call
    seen: list[Any] = []

    class Noting(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            seen.append(keras.losses.Dice.call)
            return jnp.mean((y_true - y_pred) ** 2, axis=-1)

    with strategy_of(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", Noting())
    model.fit(P, Y, batch_size=4, verbose=0)
    assert own is keras.losses.Dice.call
    assert any(each is not own for each in seen)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_loss_over_the_batch_sees_all_rows(replicas: int) -> None:
    expected = float(keras.losses.Dice()(Y, P))
    with strategy_of(replicas).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
        model.compile("sgd", keras.losses.Dice())
    assert model.evaluate(P, Y, batch_size=4, verbose=0) == pytest.approx(expected, rel=1e-6)


def test_other_threads_compute_as_keras_does() -> None:
    strategy_of(2)
    loss = keras.losses.MeanSquaredError()
    expected, found = float(loss(Y, P)), []
    with during(Extent.STEP):
        thread = threading.Thread(target=lambda: found.append(float(loss(Y, P))))
        thread.start()
        thread.join()
    assert found == [expected]


def test_gradients_are_summed_in_run_and_not_outside() -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        weight, optimizer = keras.Variable(1.0), keras.optimizers.SGD(0.25)
    strategy.run(lambda: optimizer.apply([jnp.float32(1.0)], [weight]))
    assert float(weight.value) == 0.5  # of both replicas
    optimizer.apply([jnp.float32(1.0)], [weight])
    assert float(weight.value) == 0.25


def test_a_step_of_data_calls_the_one_of_keras_in_a_function_too() -> None:
    strategy_of(1)

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().train_step(data)

    model: Any = Model()
    model.compile(keras.optimizers.SGD(0.5), "mse")
    model(np.ones((2, 1), "float32"))
    x, y = np.ones((2, 1), "float32"), np.zeros((2, 1), "float32")
    model.optimizer.build(model.trainable_variables)
    stratagem.function(lambda: model.train_step((x, y)))()
    assert np.asarray(model.dense.kernel).tolist() == [[0.0]]  # 1 - 0.5 * 2
