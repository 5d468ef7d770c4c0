"""An Estimator that trains, evaluates and predicts again and again: compiled once, and nothing stays on the device."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import UsageError
from stratagem.estimator import Estimator, EstimatorSpec, ModeKeys, RunConfig, metrics

X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def input_fn() -> Any:
    return stratagem.data.Dataset.from_tensor_slices((X, Y)).batch(4)


def make(folder: Path, replicas: int, rate: dict[str, float], made: list[Any] | None = None) -> Estimator:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        hidden = keras.layers.Dense(8)(features)
        hidden = keras.layers.Dropout(0.1)(keras.layers.BatchNormalization()(hidden), training=mode == ModeKeys.TRAIN)
        last = keras.layers.Dense(1)
        prediction = last(hidden)
        if made is not None:
            made.append(last)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=prediction)
        loss = keras.ops.mean((prediction - labels) ** 2) * rate["scale"]
        error = metrics.mean_absolute_error(labels, prediction)
        train_op = keras.optimizers.Adam(0.01).minimize(loss)
        return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"error": error})

    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    config = RunConfig(train_distribute=strategy, eval_distribute=strategy, save_summary_steps=None)
    return Estimator(model_fn, folder, config)


@pytest.mark.parametrize("replicas", [1, 2])
def test_nothing_is_compiled_twice_and_nothing_stays(replicas: int, tmp_path: Path, compiled: list[str]) -> None:
    rate = {"scale": 1.0}
    estimator = make(tmp_path, replicas, rate)

    def all_modes() -> list[float]:
        estimator.train(input_fn, steps=3)
        found = [float(estimator.evaluate(input_fn)[name]) for name in ("loss", "error")]
        return [*found, float(np.sum(list(estimator.predict(lambda: X))))]

    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    first = all_modes()
    assert compiled
    compiled.clear()
    gc.disable()  # layers of Keras refer to themselves: their variables go when they are looked for
    try:
        second = all_modes()
        left = sum(array.nbytes for array in jax.live_arrays()) - before
    finally:
        gc.enable()
    assert compiled == []
    assert all(a != b for a, b in zip(first, second, strict=True)), "it has trained on"
    assert left < X[:8].nbytes, "no variables, no batches: a few numbers"

    rate["scale"] = 3.0  # model_fn is called anew, and what it computes now counts
    assert estimator.evaluate(input_fn)["loss"] == pytest.approx(3 * second[0], rel=1e-5)
    assert len(compiled) == 1


def test_a_variable_that_is_read_when_all_is_over(tmp_path: Path) -> None:
    made: list[Any] = []
    make(tmp_path, 1, {"scale": 1.0}, made).train(input_fn, steps=1)
    with pytest.raises(UsageError, match=r"was read after train, .*\n.*\n.*get_variable_value"):
        print(made[0].kernel.numpy())
