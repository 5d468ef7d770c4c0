"""`Model.build(shape)` makes the variables of a model by a call: shapes recorded from TensorFlow 2.21 with Keras 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import UsageError

keras = tf.keras


class Layers(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = keras.layers.Dense(2), keras.layers.BatchNormalization()

    def call(self, x: Any, training: bool = False) -> Any:
        return self.norm(self.dense(x), training=training)


class TwoInputs(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(2), keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.first(inputs[0]) + self.second(inputs[1])


class Named(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs["x"])


class BuiltAtOnce(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.build((None, 3))

    def call(self, x: Any) -> Any:
        return self.dense(x)


@pytest.mark.parametrize("within", [False, True], ids=["plain", "scope"])
@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        (Layers, (None, 3), [(3, 2), (2,), (2,), (2,), (2,), (2,)]),
        (TwoInputs, [(None, 3), (None, 4)], [(3, 2), (2,), (4, 2), (2,)]),
        (Named, {"x": (None, 3)}, [(3, 2), (2,)]),
        (BuiltAtOnce, None, [(3, 2), (2,)]),
    ],
)
def test_shapes_of_weights(kind: Any, shape: Any, expected: list[Any], within: bool) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) if within else tf.distribute.get_strategy()
    with strategy.scope():
        model = kind()
        if shape is not None:
            model.build(shape)
    assert [weight.shape for weight in model.get_weights()] == expected
    assert model.built


def test_by_name_and_then_weights_are_loaded(tmp_path: Any) -> None:
    first, second = Layers(), Layers()
    first(tf.ones((2, 3)))
    first.save_weights(str(tmp_path / "w.weights.h5"))
    second.build(input_shape=(None, 3))
    second.load_weights(str(tmp_path / "w.weights.h5"))
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        assert a.tolist() == b.tolist()


def test_what_a_call_with_shapes_cannot_build_warns() -> None:
    class Looks(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x) if float(tf.reduce_sum(x)) > 0 else x

    model = Looks()
    with pytest.warns(UserWarning, match="it looks like it has unbuilt state"):
        model.build((None, 3))


class Scaled(keras.layers.Layer):
    def build(self, input_shape: Any) -> None:
        self.scale = tf.Variable(tf.ones([input_shape[-1]]) * 2.0)
        self.shift = tf.Variable(tf.cast(tf.range(input_shape[-1]), "float32"), trainable=False)

    def call(self, x: Any) -> Any:
        return x * self.scale + self.shift


class Wrapping(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Scaled()

    def call(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize("replicas", [1, 2])
def test_first_values_that_build_computes(replicas: int) -> None:
    """`fit` builds the inner layer while the model is traced; TensorFlow calls `build` outside of its graph."""
    with tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
        model = Wrapping()
        model.compile(keras.optimizers.SGD(0.0), "mse")
    x = np.ones((4, 3), "float32")
    assert model.fit(x, x, batch_size=4, verbose=0).history["loss"] == pytest.approx([(1 + 4 + 9) / 3])
    assert model.inner.scale.numpy().tolist() == [2.0, 2.0, 2.0]
    assert model.inner.shift.numpy().tolist() == [0.0, 1.0, 2.0]


def test_first_values_that_depend_on_more_than_constants() -> None:
    refused = set()

    @tf.function
    def make(x: Any) -> Any:
        for name, value in {"argument": x * 2.0, "draw": tf.random.normal([2])}.items():
            with pytest.raises(UsageError, match="from its arguments, variables or random numbers"):
                tf.Variable(value)
            refused.add(name)
        return x

    make(tf.ones([2]))
    assert refused == {"argument", "draw"}
