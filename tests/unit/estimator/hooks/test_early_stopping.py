"""Hooks that stop training by evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    RunConfig,
    TrainSpec,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
    train_and_evaluate,
)
from stratagem.estimator.hooks.early_stopping import EarlyStoppingHook


def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """`w` becomes smaller by 1 at each step; the loss is its distance from 8."""
    w = keras.Variable(10.0, name="w")
    if mode == "infer":
        return EstimatorSpec(mode, predictions={"y": features["x"] * w})
    train_op = keras.optimizers.SGD(1.0).minimize(w.value * 1.0)
    return EstimatorSpec(mode, loss=keras.ops.abs(w - 8.0), train_op=train_op)


def ones() -> Any:
    return stratagem.data.Dataset.from_tensor_slices(({"x": np.ones((4, 2), "float32")}, np.ones(4))).repeat().batch(2)


def make(folder: Path, **config: Any) -> Estimator:
    return Estimator(model_fn, folder, RunConfig(save_summary_steps=None, save_checkpoints_steps=1, **config))


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
    with pytest.raises(InputError, match="but the evaluation of step 1 does not have it"):
        estimator.train(ones, steps=1, hooks=[stop_if_higher_hook(estimator, "accuracy", 1, run_every_steps=1)])


class Asked(EarlyStoppingHook):
    """A hook whose question can be asked without a session."""

    def ask(self) -> bool:
        return self.should_stop()


@pytest.mark.parametrize(
    ("make_hook", "argument", "stops"),
    [
        (stop_if_higher_hook, 3.0, True),
        (stop_if_higher_hook, 4.0, False),
        (stop_if_lower_hook, 2.0, True),
        (stop_if_lower_hook, 1.0, False),
        (stop_if_no_increase_hook, 20, True),  # 4 at step 10, not more at 20 and 30
        (stop_if_no_increase_hook, 21, False),
        (stop_if_no_decrease_hook, 10, True),  # 2 at step 20, more at 30
        (stop_if_no_decrease_hook, 11, False),
    ],
)
def test_rules(make_hook: Any, argument: float, stops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluations = {0: {"loss": 9.0}, 10: {"loss": 4.0}, 20: {"loss": 1.5}, 30: {"loss": 3.0}}
    monkeypatch.setattr("stratagem.estimator.hooks.early_stopping.read_eval_metrics", lambda folder: evaluations)
    monkeypatch.setattr("stratagem.estimator.hooks.early_stopping.EarlyStoppingHook", Asked)
    hook = make_hook(None, "loss", argument, eval_dir="folder", min_steps=10, run_every_steps=5)
    assert hook.ask() is stops
    with pytest.raises(InputError, match=r"by the metric 'accuracy', but the evaluation of step 0 does not have it"):
        make_hook(None, "accuracy", argument, "folder").ask()
