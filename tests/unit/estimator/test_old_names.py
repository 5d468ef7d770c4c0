"""Programs that were written for TensorFlow 1: layers, losses, decays, scopes, names of tensors and variables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    InMemoryEvaluatorHook,
    LoggingTensorHook,
    ModeKeys,
    RunConfig,
    add_metrics,
    decays,
    get_global_step,
    graph,
    group,
    identity,
    layers,
    losses,
    metrics,
    numpy_input_fn,
    optimizers,
    pandas_input_fn,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(24, 8, 8, 1)).astype("float32")
CLASSES = (IMAGES.mean(axis=(1, 2, 3)) > 0).astype("int64")
LABELS, LOGITS = np.array([2, 0, 1]), RNG.normal(size=(3, 3)).astype("float32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
LOG_SOFTMAX = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
WEIGHTS = np.array([1.0, 0.0, 3.0], "float32")


def config(replicas: int = 1, **options: Any) -> RunConfig:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    return RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=3, **options)


class Seen(LoggingTensorHook):
    """Keeps what it would log."""

    def __init__(self, tensors: Any) -> None:
        super().__init__(tensors, every_n_iter=1, formatter=lambda values: self.values.append(values) or "")
        self.values: list[dict[str, Any]] = []


def cnn_model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """The tutorial on layers, with batch normalization and regularizers."""
    training = mode == ModeKeys.TRAIN
    with graph.variable_scope("model", regularizer=keras.regularizers.L2(0.01)):
        net = layers.conv2d(features["x"], 4, [3, 3], padding="SAME", activation="relu")
        net = layers.max_pooling2d(net, pool_size=[2, 2], strides=2)
        net = layers.batch_normalization(net, training=training, momentum=0.5)
        net = layers.conv2d(net, 4, 3, name="second")
        net = layers.dropout(layers.flatten(net), rate=0.4, training=training)
        logits = identity(layers.dense(net, 2), "logits")
    predictions = {"classes": keras.ops.argmax(logits, 1), "probabilities": identity(jax.nn.softmax(logits), "softmax")}
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    loss = losses.sparse_softmax_cross_entropy(labels, logits)
    assert len(losses.get_regularization_losses()) == 3
    loss = losses.get_total_loss()
    if mode == ModeKeys.EVAL:
        accuracy = metrics.accuracy(labels, predictions["classes"])
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy}, predictions=predictions)
    rate = identity(decays.exponential_decay(0.1, get_global_step(), 2, 0.5, staircase=True), "rate")
    with graph.control_dependencies(graph.get_collection(graph.GraphKeys.UPDATE_OPS)):
        train_op = optimizers.GradientDescentOptimizer(rate).minimize(loss, global_step=get_global_step())
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def test_the_tutorial_on_layers(tmp_path: Path) -> None:
    """Names of variables are TensorFlow's; hooks ask for tensors and variables by name; two replicas."""
    seen = Seen(["softmax", "rate", "model/dense/bias:0"])
    estimator = Estimator(cnn_model_fn, tmp_path, config(replicas=2))
    input_fn = numpy_input_fn({"x": IMAGES}, CLASSES, batch_size=4, num_epochs=None, shuffle=False)
    estimator.train(input_fn, steps=4, hooks=[seen])
    np.testing.assert_allclose([values["rate"] for values in seen.values], [0.1, 0.1, 0.05, 0.05])
    assert seen.values[0]["softmax"].shape == (4, 2)
    assert np.any(seen.values[3]["model/dense/bias:0"] != 0)
    names = [name for name in estimator.get_variable_names() if name.startswith("model/")]
    parts = ("beta", "gamma", "moving_mean", "moving_variance")
    assert names == [
        *(f"model/batch_normalization/{part}" for part in parts),
        *(f"model/{layer}/{part}" for layer in ("conv2d", "dense", "second") for part in ("bias", "kernel")),
    ]
    assert np.any(estimator.get_variable_value("model/batch_normalization/moving_mean") != 0)
    assert set(estimator.evaluate(input_fn, steps=2)) == {"accuracy", "loss", "global_step"}
    with pytest.raises(InputError, match=r"'sotfmax'.*\n.*\n.*loss, global_step, logits, softmax, rate"):
        estimator.train(input_fn, steps=1, hooks=[Seen(["sotfmax"])])


def test_losses_are_those_of_the_formulas() -> None:
    cross = -np.take_along_axis(LOG_SOFTMAX, LABELS[:, None], 1)[:, 0]
    smooth = -(LOG_SOFTMAX * (ONE_HOT * 0.9 + 0.1 / 3)).sum(axis=1)
    error = LOGITS - ONE_HOT
    clipped = np.minimum(np.abs(error), 0.5)
    sigmoid = np.log1p(np.exp(LOGITS)) - ONE_HOT * LOGITS
    chances = 1 / (1 + np.exp(-LOGITS))
    expected = {
        "sparse": (losses.sparse_softmax_cross_entropy(LABELS, LOGITS), cross.mean()),
        "column": (losses.sparse_softmax_cross_entropy(LABELS[:, None], LOGITS), cross.mean()),
        "weights": (losses.sparse_softmax_cross_entropy(LABELS, LOGITS, WEIGHTS), (cross @ WEIGHTS) / 2),
        "softmax": (losses.softmax_cross_entropy(ONE_HOT, LOGITS, label_smoothing=0.1), smooth.mean()),
        "sigmoid": (losses.sigmoid_cross_entropy(ONE_HOT, LOGITS), sigmoid.mean()),
        "squares": (losses.mean_squared_error(ONE_HOT, LOGITS), (error**2).mean()),
        "row weights": (
            losses.mean_squared_error(ONE_HOT, LOGITS, WEIGHTS[:, None]),
            (error**2 * WEIGHTS[:, None]).sum() / 6,
        ),
        "absolute": (losses.absolute_difference(ONE_HOT, LOGITS), np.abs(error).mean()),
        "huber": (
            losses.huber_loss(ONE_HOT, LOGITS, delta=0.5),
            (0.5 * clipped**2 + 0.5 * (np.abs(error) - clipped)).mean(),
        ),
        "hinge": (losses.hinge_loss(ONE_HOT, LOGITS), np.maximum(0, 1 - (2 * ONE_HOT - 1) * LOGITS).mean()),
        "log": (
            losses.log_loss(ONE_HOT, chances),
            -np.log(np.where(ONE_HOT == 1, chances, 1 - chances) + 1e-7).mean(),
        ),
        "cosine": (losses.cosine_distance(ONE_HOT, LOGITS, axis=1), (1 - (ONE_HOT * LOGITS).sum(1)).mean()),
    }
    for name, (found, wanted) in expected.items():
        np.testing.assert_allclose(found, wanted, rtol=2e-5, err_msg=name)
    kinds = losses.Reduction
    for kind, wanted in (
        (kinds.SUM, cross @ WEIGHTS),
        (kinds.MEAN, cross @ WEIGHTS / 4),
        (kinds.SUM_OVER_BATCH_SIZE, cross @ WEIGHTS / 3),
        (kinds.NONE, cross * WEIGHTS),
    ):
        np.testing.assert_allclose(losses.compute_weighted_loss(cross, WEIGHTS, reduction=kind), wanted, rtol=1e-5)
    with pytest.raises(InputError, match=r"labels of shape \(3,\) and predictions of shape \(3, 1\)"):
        losses.mean_squared_error(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(InputError, match="reduction is 'total'"):
        losses.compute_weighted_loss(cross, reduction="total")


def test_decays_are_those_of_the_formulas() -> None:
    for step in (0, 3, 10, 17):
        part = min(step, 10) / 10
        expected = {
            "exponential": (decays.exponential_decay(0.1, step, 10, 0.5), 0.1 * 0.5 ** (step / 10)),
            "natural": (decays.natural_exp_decay(0.1, step, 10, 0.5), 0.1 * math.exp(-0.5 * step / 10)),
            "inverse": (decays.inverse_time_decay(0.1, step, 10, 0.5, True), 0.1 / (1 + 0.5 * (step // 10))),
            "polynomial": (decays.polynomial_decay(0.1, step, 10, 0.02, 2.0), 0.08 * (1 - part) ** 2 + 0.02),
            "cycle": (
                decays.polynomial_decay(0.1, step, 10, 0.02, cycle=True),
                0.08 * (1 - step / (10 * max(1, math.ceil(step / 10)))) + 0.02,
            ),
            "piecewise": (
                decays.piecewise_constant(step, [3, 10], [1.0, 0.5, 0.1]),
                {0: 1, 3: 1, 10: 0.5, 17: 0.1}[step],
            ),
            "cosine": (decays.cosine_decay(0.1, step, 10, 0.2), 0.1 * (0.4 * (1 + math.cos(math.pi * part)) + 0.2)),
            "restarts": (
                decays.cosine_decay_restarts(0.1, step, 4, t_mul=1.0),
                0.05 * (1 + math.cos(math.pi * (step % 4) / 4)),
            ),
            "linear cosine": (
                decays.linear_cosine_decay(0.1, step, 10),
                0.1 * ((1 - part) * 0.5 * (1 + math.cos(math.pi * part)) + 0.001),
            ),
        }
        for name, (found, wanted) in expected.items():
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7, err_msg=f"{name} at {step}")
    grown = decays.cosine_decay_restarts(0.1, 17, 4, t_mul=2.0, m_mul=0.5)  # 4 + 8, then 5 of 16 steps
    np.testing.assert_allclose(grown, 0.1 * 0.25 * 0.5 * (1 + math.cos(math.pi * 5 / 16)), rtol=1e-5)
    with pytest.raises(InputError, match="2 boundaries and 2 values"):
        decays.piecewise_constant(1, [1, 2], [0.1, 0.2])


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


def line_model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    prediction = layers.dense(features["x"], 1, kernel_initializer="zeros")
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=prediction)
    loss = losses.mean_squared_error(labels, prediction[:, 0])
    optimizer = optimizers.ProximalAdagradOptimizer(0.5, l1_regularization_strength=1e-3)
    return EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss), predictions={"y": prediction[:, 0]})


def test_metrics_are_added_and_evaluated_in_training(tmp_path: Path) -> None:
    x = np.arange(8, dtype="float32")
    data = pandas_input_fn({"x": x[:, None]}, 2 * x, batch_size=4, num_epochs=None, shuffle=False)

    def more(labels: Any, predictions: Any) -> dict[str, Any]:
        return {"mae": metrics.mean_absolute_error(labels, predictions["y"])}

    estimator = add_metrics(Estimator(line_model_fn, tmp_path, config()), more)
    evaluated: list[dict[str, Any]] = []
    evaluate = estimator.evaluate
    estimator.evaluate = lambda *args, **kwargs: evaluated.append(evaluate(*args, **kwargs)) or evaluated[-1]
    hook = InMemoryEvaluatorHook(estimator, data, steps=2, name="now", every_n_iter=4)
    estimator.train(data, hooks=[hook], steps=10)
    assert [int(found["global_step"]) for found in evaluated] == [0, 4, 8, 10]
    assert evaluated[0]["mae"] == 7.0
    assert evaluated[0]["loss"] > evaluated[-1]["loss"]
    assert (tmp_path / "eval_now").is_dir()
    with pytest.raises(InputError, match="metric_fn takes outputs"):
        add_metrics(estimator, lambda outputs: {})


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
