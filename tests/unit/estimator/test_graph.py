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
from stratagem.estimator.graph import find, joined, unique_name
from stratagem.estimator.running_call import Call, Scope, calling


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


def test_names_are_unique_within_their_scope() -> None:
    scope = Scope("outer")
    assert [unique_name(scope, "dense") for _ in range(3)] == ["dense", "dense_1", "dense_2"]
    assert unique_name(Scope(), "dense") == "dense"
    assert (joined("a", "b"), joined("", "b")) == ("a/b", "b")


def test_scopes_pass_on_what_variables_get() -> None:
    call = Call("train", None)
    with calling(call), graph.variable_scope("a", initializer="ones", regularizer=keras.regularizers.L1(0.5)) as outer:
        with graph.variable_scope(None, "b", reuse=graph.AUTO_REUSE) as inner:
            first = graph.get_variable("w", 3)
            assert graph.get_variable("w", 3) is first
        assert (outer.name, inner.name, first.path) == ("a", "a/b", "a/b/w")
        with graph.variable_scope(inner, reuse=True), pytest.raises(UsageError, match="reuses 'a/b/v'"):
            graph.get_variable("v", 3)
        constant = graph.get_variable("c", initializer=np.array([2.0, 4.0]), collections=["mine"], trainable=False)
    assert np.asarray(first.value).tolist() == [1.0, 1.0, 1.0]
    assert [float(loss) for loss in call.collections["regularization_losses"]] == [1.5, 3.0]
    assert call.collections["mine"] == [constant]
    assert not constant.trainable


def test_reuse_of_a_path() -> None:
    call = Call("train", None, made={"a": "what was made"})
    assert find(call, "a", True) == find(call, "a", graph.AUTO_REUSE) == "what was made"
    assert find(call, "b", False) is None
    with pytest.raises(UsageError, match="made 'a' twice"):
        find(call, "a", False)
