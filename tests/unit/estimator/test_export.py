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
    Estimator,
    EstimatorSpec,
    RunConfig,
    ServingInputReceiver,
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
