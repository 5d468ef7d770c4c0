"""Results of evaluations and predictions."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import EstimatorSpec, ModeKeys
from stratagem.estimator.programs.results import chosen, examples, metrics_of

PREDICTIONS = {"a": np.array([1, 2]), "b": np.array([[3], [4]])}


class Program:
    def __init__(self, spec: EstimatorSpec) -> None:
        self.spec = spec


def test_the_loss_is_the_mean_of_the_steps() -> None:
    metric = keras.metrics.Mean()
    metric.update_state([1.0, 2.0])
    spec = EstimatorSpec(ModeKeys.EVAL, loss=0.0, eval_metric_ops={"mean": metric, "pair": (metric, 1.5)})
    found = metrics_of(Program(spec), [np.float32(1.0), np.float32(4.0)], 7)
    assert found == {"mean": 1.5, "pair": 1.5, "loss": 2.5, "global_step": 7}
    assert "loss" not in metrics_of(Program(spec), [], 7)


def test_predictions_by_key_and_by_row() -> None:
    assert chosen(PREDICTIONS, None) is PREDICTIONS
    assert list(chosen(PREDICTIONS, "b")) == ["b"]
    assert [(int(row["a"]), row["b"].tolist()) for row in examples(PREDICTIONS)] == [(1, [3]), (2, [4])]
    with pytest.raises(InputError, match="the predictions of model_fn are one tensor"):
        chosen(np.zeros(2), ["a"])
    with pytest.raises(InputError, match=r"shapes \(2,\), \(3,\)"):
        next(examples([np.zeros(2), np.zeros(3)]))
