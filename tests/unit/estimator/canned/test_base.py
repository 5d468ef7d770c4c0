"""The base of Estimators that come with a model: parts, and their optimizers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import ModeKeys, RegressionHead, RunConfig
from stratagem.estimator.canned.base import Canned, Part, minimizing
from stratagem.estimator.updates import TrainOp, run_train_op


class Taken:
    """Stands for an optimizer that a function makes."""

    def minimize(self, loss: Any, var_list: Any) -> Any:
        return loss, var_list


def test_a_function_makes_the_optimizer_of_each_call() -> None:
    made = []
    train = minimizing("optimizer", lambda: made.append(1) or Taken(), 0.1)
    assert train("loss") == ("loss", None)
    assert train("again") == ("again", None)
    assert len(made) == 2


def test_names_and_optimizers_are_made_with_their_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []

    def minimize(optimizer: Any, loss: Any, var_list: Any = None) -> None:
        seen.append((type(optimizer).__name__, float(optimizer.learning_rate.value)))

    monkeypatch.setattr(keras.optimizers.Optimizer, "minimize", minimize, raising=False)
    minimizing("optimizer", "Ftrl", 0.25)(None)
    outside = keras.optimizers.SGD(0.5)
    minimizing("optimizer", outside, 0.25)(None)
    assert seen == [("Ftrl", 0.25), ("SGD", 0.5)]
    for wrong in ("adam", 3):
        with pytest.raises(InputError, match=rf"dnn_optimizer is {wrong!r}.*\n.*Adagrad, Adam, Ftrl, RMSProp, SGD"):
            minimizing("dnn_optimizer", wrong, 0.1)


def test_logits_of_parts_are_added_and_each_part_trains() -> None:
    trained: list[float] = []

    def part(value: float) -> Part:
        def train(loss: Any) -> TrainOp:
            return TrainOp(lambda: trained.append(value))

        return Part(lambda features, mode: jnp.full((2, 1), value), train)

    estimator = Canned(RegressionHead(), [part(2.0), part(3.0)], None, RunConfig(save_summary_steps=None))
    spec = estimator.call_model_fn({"x": np.zeros(2)}, np.array([5.0, 4.0]), ModeKeys.TRAIN)
    assert float(spec.loss) == 0.5
    run_train_op(spec.train_op)
    assert trained == [2.0, 3.0]
    with pytest.raises(InputError, match="input_fn gives features of type ndarray"):
        estimator.call_model_fn(np.zeros(2), None, ModeKeys.PREDICT)
