"""Exports, early stopping by evaluations, and Keras models as Estimators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError
from stratagem.data import TensorSpec
from stratagem.estimator import (
    BestExporter,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    FinalExporter,
    LatestExporter,
    RunConfig,
    ServingInputReceiver,
    TrainSpec,
    model_to_estimator,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_no_decrease_hook,
    train_and_evaluate,
)
from stratagem.estimator.export import PROGRAM, SIGNATURE

LOAD = """
import sys, json, jax.export, numpy as np
from pathlib import Path
predict = jax.export.deserialize(bytearray(Path(sys.argv[1]).read_bytes())).call
result = predict({"x": np.arange(10, dtype="float32").reshape(5, 2)})
assert "keras" not in sys.modules and "stratagem" not in sys.modules
print(json.dumps(np.asarray(result["y"]).tolist()))
"""


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """`w` becomes smaller by 1 at each step; the loss is its distance from 8."""
    w = keras.Variable(10.0, name="w")
    if mode == "infer":
        return EstimatorSpec(mode, predictions={"y": features["x"] * w})
    train_op = keras.optimizers.SGD(1.0).minimize(w.value * 1.0)
    return EstimatorSpec(mode, loss=keras.ops.abs(w - 8.0), train_op=train_op)


def ones() -> Any:
    return stratagem.data.Dataset.from_tensor_slices(({"x": np.ones((4, 2), "float32")}, np.ones(4))).repeat().batch(2)


def receiver() -> ServingInputReceiver:
    return ServingInputReceiver({"x": TensorSpec((None, 2), "float32")})


def make(folder: Path, **config: Any) -> Estimator:
    return Estimator(model_fn, folder, RunConfig(save_summary_steps=None, save_checkpoints_steps=1, **config))


def test_an_export_runs_without_keras_and_stratagem(tmp_path: Path) -> None:
    estimator = make(tmp_path).train(ones, max_steps=3)
    folder = estimator.export_saved_model(tmp_path / "export", receiver)
    assert Path(folder).parent == tmp_path / "export"
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(Path(folder, PROGRAM))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(json.loads(done.stdout), 7.0 * np.arange(10).reshape(5, 2))
    signature = json.loads(Path(folder, SIGNATURE).read_text())
    assert signature == {
        "features": {"x": "float32['rows', '2']"},
        "predictions": {"y": "float32['rows', '2']"},
    }
    with pytest.raises(InputError, match="serving_input_receiver_fn='x'"):
        estimator.export_saved_model(tmp_path, "x")


def test_exporters(tmp_path: Path) -> None:
    """The loss is 1 after one step, 0 after two, 1 and 2 later: the second is the best."""
    exporters = [
        BestExporter("best", receiver),
        LatestExporter("latest", receiver, exports_to_keep=2),
        FinalExporter("final", receiver),
    ]
    spec = EvalSpec(ones, steps=1, exporters=exporters, throttle_secs=0)
    metrics, exports = train_and_evaluate(make(tmp_path), TrainSpec(ones, max_steps=4), spec)
    assert float(metrics["loss"]) == 2.0
    assert exports[0] is None
    assert [Path(path).parent for path in exports[1:]] == [tmp_path / "export" / name for name in ("latest", "final")]
    kept = {name: len(list((tmp_path / "export" / name).iterdir())) for name in ("best", "latest", "final")}
    assert kept == {"best": 2, "latest": 2, "final": 1}


def test_training_stops_by_evaluations(tmp_path: Path) -> None:
    estimator = make(tmp_path)
    hook = stop_if_no_decrease_hook(estimator, "loss", max_steps_without_decrease=2, run_every_steps=1)
    spec = TrainSpec(ones, max_steps=9, hooks=[hook])
    metrics, _ = train_and_evaluate(estimator, spec, EvalSpec(ones, steps=1, throttle_secs=0))
    # Evaluated after steps 1, 2, 3, 4 with losses 1, 0, 1, 2: two steps without a decrease.
    assert int(metrics["global_step"]) == 4
    assert [(step, values["loss"]) for step, values in read_eval_metrics(estimator.eval_dir()).items()] == [
        (1, 1.0),
        (2, 0.0),
        (3, 1.0),
        (4, 2.0),
    ]
    estimator.train(ones, steps=3, hooks=[stop_if_higher_hook(estimator, "loss", 1.5, run_every_steps=1)])
    assert estimator.get_variable_value("global_step") == 5
    with pytest.raises(InputError, match="which the evaluation of step 1 has not"):
        estimator.train(ones, steps=1, hooks=[stop_if_higher_hook(estimator, "accuracy", 1, run_every_steps=1)])


def test_a_keras_model_as_an_estimator(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 4)).astype("float32"), rng.integers(0, 3, 32)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, kernel_regularizer="l2"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    before = [np.asarray(variable.value) for variable in model.variables]

    def input_fn() -> Any:
        return stratagem.data.Dataset.from_tensor_slices((x, y)).batch(8)

    config = RunConfig(save_summary_steps=None)
    estimator = model_to_estimator(model, model_dir=tmp_path, config=config, metric_names_map={"accuracy": "right"})
    estimator.train(input_fn)
    metrics = estimator.evaluate(input_fn)
    logits = np.stack([row[model.layers[-1].name] for row in estimator.predict(input_fn)])
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(np.asarray(variable.value), value)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    expected = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    assert set(metrics) == {"loss", "right", "global_step"}
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert metrics["right"] == pytest.approx(expected["accuracy"], rel=1e-6)
    np.testing.assert_allclose(logits, model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="takes a model with weights"):
        model_to_estimator(keras.Sequential([keras.layers.Dense(1)]))


@pytest.mark.parametrize("number", [0, -1])
def test_an_exporter_that_would_keep_nothing_is_refused(number: int) -> None:
    for kind in (LatestExporter, BestExporter):
        with pytest.raises(InputError, match=f"{kind.__name__} was given exports_to_keep={number}"):
            kind("name", lambda: None, exports_to_keep=number)
