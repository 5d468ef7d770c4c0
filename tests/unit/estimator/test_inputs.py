"""Input functions, and what becomes of what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import UsageError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    RunConfig,
)


def config(replicas: int = 1, **options: Any) -> RunConfig:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    return RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=3, **options)


def test_an_iterator_of_the_old_kind_gives_every_batch() -> None:
    def input_fn() -> Any:
        iterator = stratagem.data.Dataset.from_tensor_slices((np.arange(6.0), np.arange(6))).batch(2)
        x, y = iterator.make_one_shot_iterator().get_next()
        return {"x": x}, y

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(mode, predictions={"x": features["x"], "twice": 2 * features["x"]})

    found = [row["twice"] for row in Estimator(model_fn, config=config()).predict(input_fn)]
    assert found == [0, 2, 4, 6, 8, 10]

    eager = stratagem.data.Dataset.range(2).make_one_shot_iterator()
    assert [int(eager.get_next()), *map(int, eager)] == [0, 1]

    def computing() -> Any:
        return 2 * np.asarray(stratagem.data.Dataset.range(3).batch(1).make_one_shot_iterator().get_next())

    with pytest.raises(UsageError, match=r"computed with what get_next\(\) gave"):
        list(Estimator(model_fn, config=config()).predict(computing))
