"""Variables of a model function: made once, named alike in each mode, and errors where it does not repeat itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.estimator import Estimator, EstimatorSpec, RunConfig, SessionRunHook

SGD = "SGD" if keras.__version__.startswith("3.14.") else "sgd"
"""Keras 3.14 names an optimizer by its class."""

X = np.arange(12, dtype="float32").reshape(6, 2) / 12


def input_fn() -> Any:
    """A last batch of another size: the step is traced again for it."""
    return stratagem.data.Dataset.from_tensor_slices((X, X)).batch(4)


def trained(folder: Path, layers: Any, seed: int | None = 5) -> Estimator:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        loss = keras.ops.mean((layers(features) - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(0.1).minimize(loss))

    config = RunConfig(save_summary_steps=None, tf_random_seed=seed)
    return Estimator(model_fn, folder, config).train(input_fn)


def test_names_are_counted_anew_and_repeated_paths_told_apart(tmp_path: Path) -> None:
    outside = keras.layers.Dense(2).name  # Keras's own counters go on as if nothing had been made inside

    def layers(x: Any) -> Any:
        scale, shift = (keras.Variable(value, name="twice") for value in (1.0, 0.5))
        return keras.layers.Dense(2)(keras.layers.Dense(2)(x)) * scale + shift

    names = trained(tmp_path, layers).get_variable_names()
    expected = ["dense/bias", "dense/kernel", "dense_1/bias", "dense_1/kernel", "global_step", f"{SGD}/iteration"]
    assert names == sorted([*expected, "twice", "twice_1"])
    number = lambda name: int(name.partition("_")[2] or 0)  # noqa: E731
    assert number(keras.layers.Dense(2).name) == number(outside) + 1


def test_the_seed_decides_and_random_numbers_outside_stay_as_they_are(tmp_path: Path) -> None:
    def layers(x: Any) -> Any:
        noise = random.random() + np.random.rand()  # the same at each call
        return keras.layers.Dense(2)(keras.layers.Dropout(0.5)(x, training=True)) * noise

    random.seed(1)
    np.random.seed(1)
    runs = [trained(tmp_path / str(i), layers).get_variable_value("dense/kernel") for i in range(2)]
    after = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    assert (random.random(), np.random.rand()) == after
    np.testing.assert_array_equal(runs[0], runs[1])
    other = trained(tmp_path / "other", layers, seed=6).get_variable_value("dense/kernel")
    assert not np.allclose(other, runs[0])


def test_a_model_fn_that_does_not_repeat_itself(tmp_path: Path) -> None:
    calls: list[int] = []

    def more(x: Any) -> Any:
        calls.append(1)
        return keras.layers.Dense(2)(x) if len(calls) == 1 else keras.layers.Dense(2)(keras.layers.Dense(2)(x))

    with pytest.raises(UsageError, match=rf"made .* where it made '{SGD}/iteration'"):
        trained(tmp_path / "more", more)
    with pytest.raises(UsageError, match="made a variable of a value that it computes"):
        trained(tmp_path / "computed", lambda x: x * keras.Variable(keras.ops.mean(x)))


def test_weights_loaded_in_model_fn_are_those_to_begin_with(tmp_path: Path) -> None:
    def network() -> keras.Model:
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(2, name="last")])

    trained_before = network()
    trained_before.save_weights(tmp_path / "before.weights.h5")
    matrix = np.full((3, 2), 0.25, "float32")
    read: list[np.ndarray] = []

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        model = network()
        model.load_weights(tmp_path / "before.weights.h5")
        model.get_layer("last").set_weights([matrix, np.zeros(2)])
        loss = keras.ops.mean((model(features) - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(0.1).minimize(loss))

    class Reads(SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            read[:] = [
                session.run(session.variables[name]) for name in ("sequential/dense/kernel", "sequential/last/kernel")
            ]

    config = RunConfig(save_summary_steps=None)
    untrained = Estimator(model_fn, tmp_path / "other", config).evaluate(input_fn, hooks=[Reads()])
    np.testing.assert_array_equal(read[0], trained_before.get_weights()[0])
    np.testing.assert_array_equal(read[1], matrix)

    estimator = Estimator(model_fn, tmp_path / "trained", config).train(input_fn, hooks=[Reads()], steps=1)
    np.testing.assert_array_equal(read[0], trained_before.get_weights()[0])
    assert estimator.evaluate(input_fn)["loss"] < untrained["loss"]
    after = estimator.get_variable_value("sequential/last/kernel")
    assert not np.array_equal(after, matrix)
    estimator.train(input_fn, hooks=[Reads()], steps=1)  # goes on from the checkpoint, not from the file
    np.testing.assert_array_equal(read[1], after)

    def too_narrow(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        layer = keras.layers.Dense(2)
        layer.build((None, 2))
        layer.kernel.assign(matrix)
        return EstimatorSpec(mode, predictions=layer(features))

    with pytest.raises(InputError, match=r"gave 'dense/kernel', of shape \(2, 2\), a value of shape \(3, 2\)"):
        list(Estimator(too_narrow, tmp_path / "narrow", config).predict(lambda: X))
