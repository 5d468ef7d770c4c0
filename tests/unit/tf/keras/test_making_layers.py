"""How programs for Keras 2 make layers: `weights=`, names with slashes, batch sizes; what layers say of their calls.

Expected numbers and shapes are tf_keras 2.21's, or follow from the weights that are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

KERNEL = np.arange(6, dtype="float32").reshape(3, 2)
BIAS = np.array([10.0, 20.0], "float32")
X = np.ones((4, 3), "float32")


class Net(tf.keras.Model):
    """A model whose layers are built in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(2, weights=[KERNEL, BIAS])

    def call(self, x: Any) -> Any:
        return self.dense(x)


def test_weights_of_a_layer() -> None:
    layer = tf.keras.layers.Dense(2, weights=[KERNEL, BIAS])
    assert layer(X)[0].numpy().tolist() == [16.0, 29.0]


def test_weights_of_a_layer_that_fit_builds() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = Net()
        model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    history = model.fit(X, np.array([[16.0, 28.0]] * 4, "float32"), epochs=1, verbose=0)
    assert history.history["loss"] == [0.5]
    assert model.dense.get_weights()[0].tolist() == KERNEL.tolist()


def test_weights_of_other_shapes_are_told() -> None:
    layer = tf.keras.layers.Dense(2, weights=[KERNEL])
    with pytest.raises(InputError, match=r"given weights of the shapes \[\(3, 2\)\], but its weights have the shapes"):
        layer(X)


def test_slashes_in_names() -> None:
    inputs = tf.keras.Input((3,), name="in/x")
    hidden = tf.keras.layers.Dense(2, name="block1/dense")(inputs)
    model = tf.keras.Model(inputs, hidden, name="net/one")
    assert model.name == "net_one"
    assert model.get_layer("block1/dense") is model.get_layer("block1_dense")
    assert model.get_layer(index=1).name == "block1_dense"


def test_sizes_that_are_integers_of_numpy() -> None:
    ids = np.array([[0, 3], [2, 1]])
    model = tf.keras.Sequential([tf.keras.layers.Embedding(ids.max() + 1, np.int32(2)), tf.keras.layers.Flatten()])
    model.add(tf.keras.layers.Dense(np.int64(3)))
    model.add(tf.keras.layers.RepeatVector(np.int64(5)))
    assert model.predict(ids, verbose=0).shape == (2, 5, 3)
    assert model.layers[0].get_config()["input_dim"] == 4
    assert type(model.layers[0]) == tf.keras.layers.Embedding  # noqa: E721 - as programs write it
    assert isinstance(model.layers[2], tf.keras.layers.Dense)
    attention = tf.keras.layers.MultiHeadAttention(num_heads=np.int64(2), key_dim=np.int64(4))
    assert attention(np.ones((1, 3, 8), "float32"), np.ones((1, 3, 8), "float32")).shape == (1, 3, 8)


class Own(tf.keras.layers.Layer):
    """A layer whose weight has a slash in its name."""

    def __init__(self, name: str) -> None:
        super().__init__(True, name)

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight("own/kernel", (3, 1), initializer="ones")
        self.bias = self.add_weight(name="own/bias", shape=(1,), initializer="zeros")

    def call(self, x: Any) -> Any:
        return tf.matmul(x, self.kernel) + self.bias


def test_names_of_weights_and_names_by_position() -> None:
    layer = Own("a/b")
    assert layer(X)[0].numpy().tolist() == [3.0]
    assert layer.name == "a_b"
    assert [weight.name for weight in layer.weights] == ["own_kernel", "own_bias"]


def test_add_variable_is_add_weight() -> None:
    """Keras 2 gave it the name first, and an initializer was not needed; Keras 3 gives it the shape first."""
    layer = tf.keras.layers.Layer()
    kernel = layer.add_variable("w", [4, 2])
    bias = layer.add_variable(name="own/bias", shape=3, initializer="zeros")
    third = layer.add_variable((1,), "ones", name="c")
    assert [(each.name, tuple(each.shape)) for each in layer.weights] == [
        ("w", (4, 2)),
        ("own_bias", (3,)),
        ("c", (1,)),
    ]
    assert np.abs(kernel.numpy()).max() <= 1.0  # sqrt(6 / (4 + 2)): Glorot's uniform numbers
    assert (bias.numpy().tolist(), third.numpy().tolist()) == ([0.0, 0.0, 0.0], [1.0])


def test_the_name_of_a_sequential_by_position() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)], "generator")
    assert model.name == "generator"
    assert model.trainable


@pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`")
def test_batch_input_shape_is_that_of_the_first_input() -> None:
    model = tf.keras.Sequential([tf.keras.layers.LSTM(2, stateful=True, batch_input_shape=(4, 5, 3))])
    assert model.input_shape == (4, 5, 3)
    assert model.output_shape == (4, 2)
    x = np.ones((4, 5, 3), "float32")
    first, second = model(x).numpy(), model(x).numpy()
    assert np.abs(first - second).max() > 1e-3  # the second goes on where the first ended
    model.reset_states()
    np.testing.assert_array_equal(model(x), first)


def test_shapes_of_layers() -> None:
    inputs = tf.keras.Input((3,))
    dense = tf.keras.layers.Dense(2)
    both = tf.keras.layers.Concatenate()([dense(inputs), inputs])
    model = tf.keras.Model(inputs, both)
    assert [layer.output_shape for layer in model.layers] == [[(None, 3)], (None, 2), (None, 5)]
    assert model.layers[2].input_shape == [(None, 2), (None, 3)]
    assert model.input_shape == (None, 3)
    assert model.output_shape == (None, 5)
    assert (dense.input_shape, dense.output_shape) == ((None, 3), (None, 2))


def test_a_layer_may_have_attributes_of_these_names() -> None:
    class Pool(tf.keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.output_shape = 7

    assert Pool().output_shape == 7


@pytest.mark.parametrize(("units", "expected"), [(1, [[0], [1]]), (2, [0, 1])])
def test_predict_classes(units: int, expected: Any) -> None:
    kernel = np.array([[0.1, 0.0], [0.9, 1.0]], "float32")[:, :units]
    model = tf.keras.Sequential([tf.keras.layers.Dense(units, use_bias=False, weights=[kernel])])
    x = np.eye(2, dtype="float32")
    assert model.predict_classes(x).tolist() == expected
    assert model.predict_proba(x).tolist() == kernel.tolist()
