"""A model function whose numbers are known beforehand, for tests of hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

import stratagem
from stratagem.estimator import Estimator, EstimatorSpec, RunConfig, summary

VALUES = np.arange(1, 13, dtype="float32")


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    """`w` becomes smaller by 1 at each step; the loss is `w` times the mean of the features."""
    w = keras.Variable(10.0, name="w")
    mean = summary.scalar("mean", keras.ops.mean(features))
    loss = w.value * mean
    optimizer = keras.optimizers.SGD(1.0)
    train_op = optimizer.minimize(w.value + 0.0 * loss)
    hooks = params["hooks"](mean, loss) if params else []
    return EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks, evaluation_hooks=hooks)


def dataset() -> Any:
    return stratagem.data.Dataset.from_tensor_slices((VALUES, VALUES)).batch(3)


def estimator(folder: Path, hooks: Any = None, replicas: int = 1, **config: Any) -> Estimator:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    config = {"save_summary_steps": None, "log_step_count_steps": None, **config}
    params = {"hooks": hooks} if hooks else None
    return Estimator(model_fn, folder, RunConfig(train_distribute=strategy, **config), params)
