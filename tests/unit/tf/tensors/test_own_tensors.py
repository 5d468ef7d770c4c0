"""What reads or copies a variable is a tensor of its own: gradients by it are not those by the variable.

The numbers are TensorFlow 2.21's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stratagem.tf as tf


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize(
    "read",
    [tf.convert_to_tensor, tf.identity, lambda v: tf.identity_n([v])[0], lambda v: v.read_value(), lambda v: v + 0.0],
    ids=["convert_to_tensor", "identity", "identity_n", "read_value", "sum"],
)
def test_a_gradient_by_what_was_read(read: Callable[[Any], Any], compiled: bool) -> None:
    v = tf.Variable(3.0)

    def gradients() -> Any:
        with tf.GradientTape() as tape:
            own = read(v)
            product = own * v * v
        return tape.gradient(product, [own, v])

    assert [float(each) for each in (tf.function(gradients) if compiled else gradients)()] == [9.0, 27.0]


def test_a_tensor_is_converted_to_itself() -> None:
    x = tf.constant([1.0, 2.0])
    assert tf.convert_to_tensor(x) is x


@pytest.mark.parametrize(
    "read",
    [
        lambda v: tf.cast(v, tf.float32),
        tf.constant,
        lambda v: tf.reshape(v, v.shape),
        lambda v: tf.transpose(v, [0, 1]),
        lambda v: tf.broadcast_to(v, v.shape),
        lambda v: tf.concat([v], 0),
        lambda v: tf.slice(v, [0, 0], v.shape),
        lambda v: v[:],
        lambda v: v[...],
    ],
    ids=["cast", "constant", "reshape", "transpose", "broadcast_to", "concat", "slice", "[:]", "[...]"],
)
def test_what_an_operation_with_nothing_to_do_read_stays_when_fit_trains_the_variable(
    read: Callable[[Any], Any],
) -> None:
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        layer = tf.keras.layers.Dense(1, kernel_initializer="ones")
        model = tf.keras.Sequential([tf.keras.Input((2,)), layer])
        model.compile("sgd", "mse")
    before = read(layer.kernel)
    model.fit(tf.ones([4, 2]), tf.ones([4, 1]), epochs=2, verbose=0)
    assert before.numpy().tolist() == [[1.0], [1.0]]
    assert layer.kernel.numpy().tolist() != [[1.0], [1.0]]
