"""`train_and_evaluate`: in turn, by several specs, and as an evaluator that follows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it
from tests.clock import HandClock

import stratagem
from stratagem.core.clock import Clock
from stratagem.core.errors import InputError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    Exporter,
    RunConfig,
    SessionRunHook,
    TrainSpec,
    train_and_evaluate,
)


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """`w` becomes smaller by 1 at each step, and so does the loss."""
    w = keras.Variable(10.0, name="w")
    loss = w * keras.ops.mean(features)
    return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.SGD(1.0).minimize(loss))


def ones() -> Any:
    return stratagem.data.Dataset.from_tensor_slices((np.ones(4, "float32"), np.ones(4, "float32"))).repeat().batch(2)


def make(folder: Path, clock: Clock, **config: Any) -> Estimator:
    config = {"save_summary_steps": None, "save_checkpoints_steps": 2, **config}
    return Estimator(model_fn, folder, RunConfig(**config), clock=clock)


class Records(Exporter):
    def __init__(self, name: str) -> None:
        self._name = name
        self.seen: list[Any] = []

    @property
    def name(self) -> str:
        return self._name

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> str:
        step = int(eval_result["global_step"])
        assert checkpoint_path == f"{estimator.model_dir}/model.ckpt-{step}"
        self.seen.append((Path(export_path).relative_to(estimator.model_dir), step, is_the_final_export))
        return f"export {step}"


def test_in_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, exporter = HandClock(), Records("best")

    class Time(SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            clock.time += 1.0

    with caplog.at_level(logging.INFO, "stratagem"):
        metrics, exports = train_and_evaluate(
            make(tmp_path, clock),
            TrainSpec(ones, max_steps=7, hooks=[Time()]),
            EvalSpec(ones, steps=1, exporters=exporter, throttle_secs=4),
            clock=clock,
        )
    assert {name: float(value) for name, value in metrics.items()} == {"loss": 3.0, "global_step": 7.0}
    assert exports == ["export 7"]
    # Saved at 0, 2, 4, 6 and 7: the first is not evaluated, that at 4 comes too early.
    folder = Path("export/best")
    assert exporter.seen == [(folder, 2, False), (folder, 6, False), (folder, 7, True)]
    lines = caplog.messages
    first = lines.index("Running training and evaluation locally (non-distributed).")
    assert lines[first + 1] == (
        "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency is "
        "determined based on RunConfig arguments: save_checkpoints_steps 2 or save_checkpoints_secs None."
    )
    assert (
        lines.count("Skip the current checkpoint eval due to throttle secs (4 secs).") == 2
    )  # the last, until the end
    assert lines[-1] == "Loss for final step: 4.0."
    again = train_and_evaluate(make(tmp_path, clock), TrainSpec(ones, max_steps=7), EvalSpec(ones), clock=clock)
    assert again == (None, [])


def test_several_specs(tmp_path: Path) -> None:
    clock = HandClock()
    specs = [EvalSpec(ones, steps=1, name="a"), EvalSpec(ones, steps=2, name="b", exporters=[Records("x")])]
    metrics, exports = train_and_evaluate(make(tmp_path, clock), TrainSpec(ones, max_steps=1), specs, clock=clock)
    assert [(name, float(metrics[name]["loss"])) for name in metrics] == [("a", 9.0), ("b", 9.0)]
    assert exports == {"a": [], "b": ["export 1"]}
    assert {folder.name for folder in tmp_path.iterdir() if folder.is_dir()} == {"eval_a", "eval_b"}


def test_an_evaluator_follows_until_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    make(tmp_path, clock).train(ones, max_steps=2)
    cluster = {"cluster": {"chief": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    monkeypatch.setattr("stratagem.cluster.chief_alive._listens", lambda address: True)
    evaluated = []

    class Later(Records):
        def export(
            self, estimator: Any, export_path: str, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
        ) -> str:
            evaluated.append((int(eval_result["global_step"]), clock.time, is_the_final_export))
            monkeypatch.delenv("TF_CONFIG", raising=False)
            make(tmp_path, clock).train(ones, max_steps=4)  # the chief goes on meanwhile
            return ""

    estimator = make(tmp_path, clock)
    assert (estimator.config.task_type, estimator.config.is_chief) == ("evaluator", False)
    spec = EvalSpec(ones, steps=1, exporters=Later("later"), start_delay_secs=5, throttle_secs=3)
    metrics, _ = train_and_evaluate(estimator, TrainSpec(ones, max_steps=4), spec, clock=clock)
    assert float(metrics["loss"]) == 6.0
    assert evaluated == [(2, 5.0, False), (4, 8.0, True)]


@pytest.mark.parametrize(
    ("make_spec", "message"),
    [
        (lambda: TrainSpec(None), "TrainSpec was given input_fn=None"),
        (lambda: TrainSpec(ones, max_steps=0), "TrainSpec was given max_steps=0"),
        (lambda: TrainSpec(ones, hooks=["log"]), "TrainSpec was given hooks with 'log'"),
        (lambda: EvalSpec(ones, steps=0), "EvalSpec was given steps=0"),
        (lambda: EvalSpec(ones, throttle_secs=-1), "EvalSpec was given throttle_secs=-1"),
        (lambda: EvalSpec(ones, exporters=[Records("a"), Records("a")]), "EvalSpec was given exporters="),
        (lambda: RunConfig(save_checkpoints_steps=1, save_checkpoints_secs=1), "Give one of them"),
        (lambda: RunConfig(log_step_count_steps=0), "RunConfig was given log_step_count_steps=0"),
        (lambda: RunConfig(train_distribute="mirrored"), "RunConfig was given train_distribute='mirrored'"),
        (lambda: RunConfig().replace(task_id=3), "RunConfig.replace was given task_id"),
        (lambda: EstimatorSpec("training"), "EstimatorSpec was given mode='training'"),
        (lambda: EstimatorSpec("train", loss=1.0), "EstimatorSpec for mode 'train' has no train_op"),
        (lambda: EstimatorSpec("eval"), "EstimatorSpec for mode 'eval' has no loss"),
        (lambda: EstimatorSpec("infer"), "EstimatorSpec for mode 'infer' has no predictions"),
        (lambda: EstimatorSpec("eval", loss=np.ones(3)), r"a loss of shape \(3,\)"),
        (lambda: EstimatorSpec("eval", loss=1.0, eval_metric_ops={"a": 0.5}), r"eval_metric_ops\['a'\] of type float"),
        (lambda: EstimatorSpec("eval", loss=1.0, eval_metric_ops=[1]), "eval_metric_ops of type list"),
    ],
)
def test_misuse_is_named(make_spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_spec()


def test_misuse_of_train_and_evaluate(tmp_path: Path) -> None:
    estimator = make(tmp_path, HandClock())
    with pytest.raises(InputError, match="given train_spec="):
        train_and_evaluate(estimator, ones, EvalSpec(ones))
    with pytest.raises(InputError, match="given eval_spec="):
        train_and_evaluate(estimator, TrainSpec(ones), [EvalSpec(ones), EvalSpec(ones)])
