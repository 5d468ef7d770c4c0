"""`fit`, `evaluate` and `predict` with parameter servers: with one worker, Keras's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.ps.servers import small_cluster

import stratagem
from stratagem.core.errors import UsageError

X = np.random.default_rng(1).random((70, 6)).astype("float32")
Y = (X.sum(axis=1) > 3).astype("int32")
WEIGHTS = np.linspace(0.5, 1.5, 70).astype("float32")


def make_model(cls: type = keras.Sequential) -> Any:
    keras.utils.set_random_seed(3)
    layers = [
        keras.Input((6,)),
        keras.layers.Dense(8, activation="relu", kernel_regularizer="l2"),
        keras.layers.BatchNormalization(momentum=0.8),
        keras.layers.Dense(2, activation="softmax"),
    ]
    model = cls(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(0.02, clipnorm=1.0),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )
    return model


def train(model: Any, **callbacks: Any) -> dict[str, list[float]]:
    options = {"batch_size": 16, "epochs": 2, "verbose": 0, "shuffle": False, **callbacks}  # the last batch has 6 rows
    return model.fit(X, Y, sample_weight=WEIGHTS, validation_data=(X[:30], Y[:30]), **options).history


def test_one_worker_trains_as_keras(tmp_path: Path) -> None:
    plain = make_model()
    expected = train(plain)
    with small_cluster() as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver)
        with strategy.scope():
            model = make_model()
        rates = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate)
        history = train(model, callbacks=[rates])
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=2e-4, err_msg=name)
        found = model.evaluate(X, Y, batch_size=32, verbose=0, return_dict=True)
        for name, value in plain.evaluate(X, Y, batch_size=32, verbose=0, return_dict=True).items():
            assert found[name] == pytest.approx(value, rel=2e-4), name
        assert int(model.optimizer.iterations) == 10
        np.testing.assert_allclose(model.predict(X, verbose=0), plain.predict(X, verbose=0), atol=1e-4)
        # The servers' own: what a checkpoint saves. Weights below 1e-3 apart have moments below 5e-5 apart.
        for ours, theirs in zip(model.optimizer.variables, plain.optimizer.variables, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-3, atol=5e-5, err_msg=ours.path)
        before = model.get_weights()
        model.save(tmp_path / "model.keras")
        for ours, saved in zip(before, keras.models.load_model(tmp_path / "model.keras").get_weights(), strict=True):
            np.testing.assert_array_equal(ours, saved)
        assert strategy.crew.counts()["finished"] > 10
        strategy.close()


class OwnStep(keras.Sequential):
    def train_step(self, state: Any, data: Any) -> Any:
        return super().train_step(state, data)


def test_two_workers_see_each_example_once_and_own_steps_are_refused() -> None:
    strategy = stratagem.ParameterServerStrategy()
    with strategy.scope():
        model, own = make_model(), make_model(OwnStep)
    dataset = stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    model.fit(dataset, epochs=1, verbose=0)
    found = model.evaluate(dataset, verbose=0, return_dict=True)
    assert found["accuracy"] == pytest.approx(np.mean(model.predict(X, verbose=0).argmax(axis=1) == Y))
    assert int(model.optimizer.iterations) == 9
    with pytest.raises(UsageError, match="overrides train_step"):
        own.fit(dataset, verbose=0)
    strategy.close()
