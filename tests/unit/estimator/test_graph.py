"""Variables by name, scopes, and operations that depend on others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import UsageError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    RunConfig,
    decays,
    get_global_step,
    graph,
    group,
    layers,
    optimizers,
)


def config(replicas: int = 1, **options: Any) -> RunConfig:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    return RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=3, **options)


def test_two_networks_and_two_optimizers_by_scope(tmp_path: Path) -> None:
    """As GANs: what is reused is one variable; each optimizer changes its own; one by Keras with a rate of the step."""

    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        def judged(values: Any, reuse: Any = None) -> Any:
            with graph.variable_scope("judge", reuse=reuse):
                return layers.dense(values, 1, kernel_initializer="ones")

        with graph.variable_scope("maker"):
            scale = graph.get_variable("scale", initializer=np.float32([2.0]))
            graph.get_variable("fixed", [2], initializer="zeros", trainable=False)
        loss = keras.ops.mean(judged(features) - judged(features * scale, reuse=True))
        names = [variable.name for variable in graph.trainable_variables()]
        assert names == ["maker/scale:0", "judge/dense/kernel:0", "judge/dense/bias:0"]
        rate = decays.piecewise_constant(get_global_step(), [0], [0.5, 0.0])  # one step counts
        first = optimizers.GradientDescentOptimizer(rate).minimize(loss, var_list=graph.trainable_variables("judge"))
        with graph.control_dependencies([first]):
            second = keras.optimizers.SGD(rate).minimize(-loss, var_list=graph.trainable_variables("maker/"))
        return EstimatorSpec(mode, loss=loss, train_op=group(second))

    estimator = Estimator(model_fn, tmp_path, config())
    estimator.train(lambda: stratagem.data.Dataset.from_tensors(np.ones((1, 1), "float32")).repeat(), steps=3)
    np.testing.assert_allclose(estimator.get_variable_value("judge/dense/kernel"), [[1.0 + 0.5]])
    np.testing.assert_allclose(estimator.get_variable_value("maker/scale"), [2.0 - 0.5 * 1.0])  # loss is from before

    def twice(features: Any, mode: str) -> EstimatorSpec:
        layers.dense(layers.dense(features, 1, name="same"), 1, name="same")
        raise AssertionError("not reached")

    with pytest.raises(UsageError, match="made 'same' twice"):
        Estimator(twice, config=config()).train(lambda: np.ones((1, 1), "float32"), steps=1)
    with pytest.raises(UsageError, match=r"layers\.dense was called outside a model_fn"):
        layers.dense(np.ones((1, 1)), 1)
