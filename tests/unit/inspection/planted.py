"""Models in which a layer, a loss, a regularizer or an optimizer computes NaN or infinity, and what it is found by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

ROWS = 8
"""Rows of a global batch."""

BATCHES = 3


class Planted(NamedTuple):
    """A program that computes NaN or infinity at its second step.

    Args:
        make: Returns a compiled model.
        x: Its input, of three batches.
        y: Its labels.
        layer: The layer that is to be named; None where none is at fault.
        rows: Rows of the second batch that lead to it; None where none do.
        said: A part of the message.
    """

    make: Callable[[], keras.Model]
    x: np.ndarray
    y: np.ndarray
    layer: str | None
    rows: list[int] | None
    said: str


class Rooted(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.sqrt(x)


class Logged(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.log(x)


class Divided(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        total: Any = keras.ops.sum(x, axis=-1, keepdims=True)
        return 1.0 / total


class Exponential(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.exp(x)


class Scaled(keras.layers.Layer):
    """Its weight grows beyond all bounds at the second step."""

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x: Any) -> Any:
        self.count.assign_add(1.0)
        return x * self.scale / (2.0 - self.count)


class SquareRootOfWeights(keras.Regularizer):
    def __call__(self, x: Any) -> Any:
        return keras.ops.sum(keras.ops.sqrt(x))


def log_loss(y: Any, outputs: Any) -> Any:
    return -keras.ops.mean(y * keras.ops.log(outputs), axis=-1)


def model(*layers: Any, shape: tuple[int | None, ...] = (4,), loss: Any = "mse", optimizer: Any = "sgd") -> keras.Model:
    made = keras.Sequential([keras.Input(shape, name="given"), *layers], name="model")
    made.compile(optimizer, loss)
    return made


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.5, (ROWS * BATCHES, *shape)).astype("float32")


def with_rows(x: np.ndarray, rows: list[int], value: float) -> np.ndarray:
    """Return an input in which some rows of the second batch have a value."""
    x = x.copy()
    x[[ROWS + row for row in rows]] = value
    return x


HUGE = 3e38


def attention() -> keras.Model:
    given = keras.Input((3, 4))
    made = keras.Model(
        given, keras.layers.Dense(1)(keras.layers.MultiHeadAttention(2, 4, name="planted")(given, given)), name="model"
    )
    made.compile("sgd", "mse")
    return made


def exploding() -> keras.Model:
    """The learning rate of the second step is too large for any gradient."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [1e-3, 1e38])
    return model(keras.layers.Dense(1), optimizer=keras.optimizers.SGD(schedule))


def mixed() -> keras.Model:
    """Half precision overflows at 65,504."""
    layers = [keras.layers.Dense(4, name="planted", dtype="mixed_float16"), keras.layers.Dense(1)]
    return model(*layers, optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))


def regularized() -> keras.Model:
    """The first step makes a weight negative, and the regularizer of the second takes its root."""
    dense = keras.layers.Dense(
        1,
        use_bias=False,
        kernel_initializer=keras.initializers.Constant(0.01),
        kernel_regularizer=SquareRootOfWeights(),
    )
    return model(dense, optimizer=keras.optimizers.SGD(1e-2))


def outputs_of(layer: Any, *shape: int) -> Callable[[], keras.Model]:
    return lambda: model(layer(), keras.layers.Flatten(), keras.layers.Dense(1), shape=shape or (4,))


def after(layer: Any, planted: Any = Logged) -> Callable[[], keras.Model]:
    return lambda: model(layer(), planted(name="planted"), keras.layers.Dense(1))


X, Y = random(4), random(1)
SERIES, IMAGES = random(5, 4), random(6, 6, 2)
WORDS = np.random.default_rng(1).integers(0, 10, (ROWS * BATCHES, 3)).astype("int32")
LAYERS = keras.layers

PLANTED: dict[str, Planted] = {
    "log": Planted(after(lambda: LAYERS.Rescaling(1.0)), with_rows(X, [1, 2], -1.0), Y, "planted", [1, 2], "`log`"),
    "Dense": Planted(
        outputs_of(lambda: LAYERS.Dense(8, name="planted", kernel_initializer="ones")),
        with_rows(X, [5], HUGE),
        Y,
        "planted",
        [5],
        "`dot_general`",
    ),
    "Conv2D": Planted(
        outputs_of(lambda: LAYERS.Conv2D(3, 3, name="planted", kernel_initializer="ones"), 6, 6, 2),
        with_rows(IMAGES, [2, 7], HUGE),
        Y,
        "planted",
        [2, 7],
        "`conv_general_dilated`",
    ),
    "Conv1D": Planted(
        outputs_of(lambda: LAYERS.Conv1D(3, 2, name="planted", kernel_initializer="ones"), 5, 4),
        with_rows(SERIES, [4], HUGE),
        Y,
        "planted",
        [4],
        "`conv_general_dilated`",
    ),
    "LSTM": Planted(
        outputs_of(lambda: LAYERS.LSTM(4, name="planted", activation="relu", recurrent_activation="relu"), 5, 4),
        with_rows(SERIES, [1], 1e30),
        Y,
        "planted/lstm_cell",
        [1],
        "`mul`",
    ),
    "GRU": Planted(
        outputs_of(lambda: LAYERS.GRU(4, name="planted", activation="relu", recurrent_activation="relu"), 5, 4),
        with_rows(SERIES, [6], 1e30),
        Y,
        "planted",
        [6],
        "`mul`",
    ),
    "Bidirectional": Planted(
        outputs_of(
            lambda: LAYERS.Bidirectional(
                LAYERS.SimpleRNN(3, activation="relu", kernel_initializer="ones"), name="planted"
            ),
            5,
            4,
        ),
        with_rows(SERIES, [3], HUGE),
        Y,
        "planted/forward_simple_rnn/simple_rnn_cell",
        [3],
        "`dot_general`",
    ),
    "BatchNormalization": Planted(
        outputs_of(lambda: LAYERS.BatchNormalization(name="planted")),
        with_rows(X, [3], 1e25),
        Y,
        "planted",
        [3],
        "moving_variance",
    ),
    "LayerNormalization": Planted(
        outputs_of(lambda: LAYERS.LayerNormalization(name="planted")), with_rows(X, [0], HUGE), Y, "planted", [0], "in "
    ),
    "Embedding": Planted(
        lambda: model(LAYERS.Embedding(10, 4, name="planted"), LAYERS.Flatten(), LAYERS.Dense(1), shape=(3,)),
        with_rows(WORDS, [4], 4711),
        Y,
        "planted",
        [4],
        "`gather`",
    ),
    "MultiHeadAttention": Planted(
        attention, with_rows(random(3, 4), [2], 1e20), Y[:, None], "planted", [2], "`dot_general`"
    ),
    "Softmax": Planted(
        lambda: model(LAYERS.Softmax(name="planted"), LAYERS.Dense(1)),
        with_rows(X, [6], np.inf),
        Y,
        None,
        None,
        "in its input: x in row 6 ",
    ),
    "sqrt": Planted(after(lambda: LAYERS.Rescaling(1.0), Rooted), with_rows(X, [7], -1.0), Y, "planted", [7], "`sqrt`"),
    "gradient of sqrt": Planted(
        lambda: model(LAYERS.Dense(1, use_bias=False, kernel_initializer="ones"), Rooted(name="planted")),
        with_rows(X, [3], 0.0),
        Y,
        "planted",
        [3],
        "`div`",
    ),
    "division": Planted(
        after(lambda: LAYERS.Rescaling(1.0), Divided), with_rows(X, [0, 4], 0.0), Y, "planted", [0, 4], "`div`"
    ),
    "exp": Planted(
        after(lambda: LAYERS.Rescaling(1.0), Exponential), with_rows(X, [5], 100.0), Y, "planted", [5], "`exp`"
    ),
    "Lambda": Planted(
        outputs_of(lambda: LAYERS.Lambda(lambda x: x / (x - 2.0), name="planted")),
        with_rows(X, [6], 2.0),
        Y,
        "planted",
        [6],
        "at planted.py:",
    ),
    "Rescaling": Planted(
        outputs_of(lambda: LAYERS.Rescaling(1e3, name="planted")), with_rows(X, [2], HUGE), Y, "planted", [2], "`mul`"
    ),
    "mixed precision": Planted(mixed, with_rows(X, [1], 60000.0), Y, "planted", [1], "float16[8, 4]"),
    "weight": Planted(lambda: model(Scaled(name="planted")), X, random(4), "planted", None, "'model/planted/scale'"),
    "custom loss": Planted(
        lambda: model(LAYERS.Dense(1, kernel_initializer="ones"), loss=log_loss),
        with_rows(X, [2], -2.0),
        Y,
        None,
        [2],
        "in jvp(compile_loss)/log_loss, at planted.py:",
    ),
    "regularizer": Planted(
        regularized, X, Y - 5, None, None, "in no layer: a loss, regularizer or metric, at planted.py:"
    ),
    "optimizer": Planted(exploding, X, 100 * Y, None, None, "in sgd"),
    "input": Planted(
        outputs_of(lambda: LAYERS.Dense(2)), with_rows(X, [3, 7], np.nan), Y, None, None, "x in rows 3, 7 of 8"
    ),
    "label": Planted(outputs_of(lambda: LAYERS.Dense(2)), X, with_rows(Y, [3], np.nan), None, None, "y in row 3 of 8"),
}
"""`layer` and `rows` of an input that is not finite are none: the message names the input."""

QUICK = ("log", "LSTM", "optimizer", "input", "weight")
"""Of each kind of finding one."""
