"""Layers as functions, in a program that was written for TensorFlow 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError
from stratagem.estimator import (
    Estimator,
    EstimatorSpec,
    LoggingTensorHook,
    ModeKeys,
    RunConfig,
    decays,
    get_global_step,
    graph,
    identity,
    layers,
    losses,
    metrics,
    numpy_input_fn,
    optimizers,
)
from stratagem.estimator.running_call import Call, calling

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(24, 8, 8, 1)).astype("float32")
CLASSES = (IMAGES.mean(axis=(1, 2, 3)) > 0).astype("int64")


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


IMAGE = np.arange(16.0, dtype="float32").reshape(1, 4, 4, 1)


@pytest.mark.parametrize(
    ("apply", "name", "expected"),
    [
        (lambda: layers.max_pooling2d(IMAGE, 2, 2), None, [[5, 7], [13, 15]]),
        (lambda: layers.average_pooling2d(IMAGE, 2, 2, "SAME"), None, [[2.5, 4.5], [10.5, 12.5]]),
        (lambda: layers.max_pooling1d(IMAGE[:, 0], 2, 2), None, [1, 3]),
        (lambda: layers.conv2d(IMAGE, 1, 4, kernel_initializer="ones"), "conv2d", [[120]]),
        (lambda: layers.conv1d(IMAGE[:, 0], 1, 2, kernel_initializer="ones"), "conv1d", [1, 3, 5]),
        (
            lambda: layers.conv2d_transpose(IMAGE[:, :1, :1], 1, 2, kernel_initializer="ones", bias_initializer="ones"),
            "conv2d_transpose",
            [[1, 1], [1, 1]],
        ),
        (lambda: layers.dense(IMAGE[0, :, 0], 1, kernel_initializer="ones"), "dense", [0, 4, 8, 12]),
    ],
)
def test_layers_compute_what_keras_computes(apply: Any, name: str | None, expected: Any) -> None:
    call = Call("train", None)
    with calling(call):
        found = np.asarray(apply())
    np.testing.assert_allclose(found.squeeze(), np.asarray(expected, "float32").squeeze())
    weights = [variable.path for layer in call.made.values() for variable in layer.weights]
    assert weights == ([] if name is None else [f"{name}/kernel", f"{name}/bias"])


def test_a_scope_gives_kernels_their_initializer_and_regularizer() -> None:
    call = Call("train", None)
    with calling(call), graph.variable_scope("s", initializer="ones", regularizer=keras.regularizers.L2(0.5)):
        layers.dense(np.ones((1, 3), "float32"), 1)
        layers.batch_normalization(np.ones((1, 3), "float32"), fused=True)
    assert [float(loss) for loss in call.collections["regularization_losses"]] == [1.5]
    assert list(call.made) == ["s/dense", "s/batch_normalization"]


def test_functions_say_what_they_are() -> None:
    assert layers.conv3d.__name__ == "conv3d"
    assert "keras.layers.Conv3D" in str(layers.conv3d.__doc__)
    assert layers.average_pooling1d.__name__ == "average_pooling1d"
