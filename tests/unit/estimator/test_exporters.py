"""Exporters: which evaluations they export, and what they keep."""

from __future__ import annotations

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
    train_and_evaluate,
)


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


@pytest.mark.parametrize("number", [0, -1])
def test_an_exporter_that_would_keep_nothing_is_refused(number: int) -> None:
    for kind in (LatestExporter, BestExporter):
        with pytest.raises(InputError, match=f"{kind.__name__} was given exports_to_keep={number}"):
            kind("name", lambda: None, exports_to_keep=number)


class Exports:
    """Stands for an Estimator: an export is a new folder, named by a number that counts up."""

    def __init__(self) -> None:
        self.count = 0

    def export_saved_model(self, base: str, receiver_fn: Any, checkpoint_path: str) -> str:
        self.count += 1
        Path(base, str(self.count)).mkdir(parents=True)
        return str(self.count)

    def eval_dir(self) -> str:
        return "folder"


def test_which_evaluations_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = {1: {"loss": 7.0}, 2: {"loss": 5.0}, 9: {"loss": 0.0}}
    monkeypatch.setattr("stratagem.estimator.exporters.read_eval_metrics", lambda folder: earlier)
    losses = [6.0, 4.0, 4.5, 3.0]
    for exporter, expected, kept in (
        (FinalExporter("f", dict), [None, None, None, "1"], ["1"]),
        (LatestExporter("l", dict, exports_to_keep=2), ["1", "2", "3", "4"], ["3", "4"]),
        (LatestExporter("a", dict, exports_to_keep=None), ["1", "2", "3", "4"], ["1", "2", "3", "4"]),
        (BestExporter("b", dict, exports_to_keep=1), [None, "1", None, "2"], ["2"]),
    ):
        estimator, folder = Exports(), tmp_path / exporter.name
        found = [
            exporter.export(estimator, str(folder), "path", {"loss": loss, "global_step": 3 + i}, i == 3)
            for i, loss in enumerate(losses)
        ]
        assert found == expected
        assert sorted(entry.name for entry in folder.iterdir()) == kept
    with pytest.raises(InputError, match="BestExporter was given no serving_input_receiver_fn"):
        BestExporter()
