"""What tensors and variables answer to, and when their operators have TensorFlow's derivatives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf


def _slope(function: Callable[[Any], Any], at: Any) -> float:
    with tf.GradientTape() as tape:
        tape.watch(at)
        result = function(at)
    return float(tape.gradient(result, at))


def test_derivatives_are_those_of_tensorflow_under_a_tape_alone() -> None:
    zero = tf.constant(0.0)
    assert _slope(abs, zero) == _slope(keras.ops.absolute, tf.keras.ops.convert_to_tensor(zero)) == 0.0
    assert jax.grad(abs)(zero) == jax.grad(keras.ops.absolute)(zero) == 1.0
    assert stratagem.function(lambda: _slope_in_function(zero))() == 0.0


def _slope_in_function(at: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(at)
        result = abs(at)
    return tape.gradient(result, at)


@pytest.mark.parametrize("outside_first", [True, False])
def test_what_jax_has_traced_outside_is_not_used_under_a_tape(outside_first: bool) -> None:
    compiled = jax.jit(lambda x: abs(x) + x**2)
    zero = tf.constant(0.0)
    outside = [jax.grad(compiled)(zero)] if outside_first else []
    assert _slope(compiled, zero) == 0.0
    assert [*outside, jax.grad(compiled)(zero)] == [1.0] * (2 if outside_first else 1)


def test_operators_are_those_of_jax_again_after_an_exception() -> None:
    own = type(tf.constant(0.0)).__abs__

    def failing() -> None:
        with tf.GradientTape():
            assert type(tf.constant(0.0)).__abs__ is not own
            raise RuntimeError("of the program")

    with pytest.raises(RuntimeError, match="of the program"):
        failing()
    assert type(tf.constant(0.0)).__abs__ is own


def test_the_tape_of_one_thread_leaves_another_to_jax() -> None:
    zero = tf.constant(0.0)
    own = type(zero).__abs__
    entered, leave, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with tf.GradientTape():
            entered.set()
            leave.wait(10)
            found.append(_slope(abs, zero))

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    assert type(zero).__abs__ is not own
    assert jax.grad(abs)(zero) == jax.grad(keras.ops.absolute)(zero) == 1.0
    assert _slope(abs, zero) == 0.0
    leave.set()
    thread.join()
    assert found == [0.0]
    assert type(zero).__abs__ is own


def test_names_of_tensors() -> None:
    given = tf.keras.Input((3,))
    assert given.get_shape().as_list() == [None, 3]
    with pytest.raises(AttributeError, match="'KerasTensor' object has no attribute 'numpy'"):
        given.numpy()
    tensor = tf.constant([1.0, 2.0])
    assert tensor.get_shape().as_list() == [2]
    assert isinstance(tensor.numpy(), np.ndarray)
    with pytest.raises(AttributeError, match="object has no attribute 'shapes'"):
        _ = tensor.shapes
    assert not hasattr(tensor, "__jax_array__")
    variable = tf.Variable([1.0, 2.0])
    assert [float(row) for row in variable] == [1.0, 2.0]
    assert (variable.get_shape().as_list(), (2.0**variable).tolist()) == ([2], [2.0, 4.0])
    shapes = []
    jax.jit(lambda x: shapes.append(x.get_shape().as_list()))(tensor)
    assert shapes == [[2]]


def test_an_index_outside_is_refused_where_nothing_says_what_is_there() -> None:
    tensor = jnp.arange(5)
    with pytest.raises(IndexError, match="Index 5 was used on axis 0, which has 5 elements"):
        _ = tensor[5]
    with pytest.raises(IndexError, match="Index 5"):
        jax.jit(lambda x: x[5])(tensor)
    assert int(tensor.at[5].get(mode="fill", fill_value=7)) == 7


def test_what_programs_ask_of_a_variable() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    assert (v.dtype.name, v.dtype.is_floating) == ("float32", True)
    assert v.dtype == tf.float32 == "float32"
    assert tf.keras.layers.Dense(1, dtype="bfloat16").add_weight(shape=(1,)).dtype.name == "bfloat16"
    assert v.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert tf.distribute.OneDeviceStrategy("CPU:0").run(lambda: tf.constant(len(v.device))) == len(v.device)
    assert v.is_initialized() is True
    assert v.initializer is None  # as in eager TensorFlow
    same, other = {v.ref(): 1, v.ref(): 2}, tf.Variable([1.0, 2.0, 3.0])
    assert (list(same.values()), v.ref() == other.ref(), v.ref().deref() is v) == ([2], False, True)
    tensor = tf.constant(1.0)
    assert tensor.ref() in {tensor.ref()}
    assert v.sparse_read([2, 0]).numpy().tolist() == [3.0, 1.0]
    assert v.gather_nd([[1]]).numpy().tolist() == [2.0]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("scatter_add", [11.0, 2.0, 23.0]),
        ("scatter_sub", [-9.0, 2.0, -17.0]),
        ("scatter_mul", [10.0, 2.0, 60.0]),
        ("scatter_div", [0.1, 2.0, 0.15]),
        ("scatter_max", [10.0, 2.0, 20.0]),
        ("scatter_min", [1.0, 2.0, 3.0]),
        ("scatter_update", [10.0, 2.0, 20.0]),
    ],
)
def test_slices_of_a_variable(method: str, expected: list[float]) -> None:
    slices = tf.IndexedSlices(values=[10.0, 20.0], indices=[0, 2])
    for run in (lambda change: change(), lambda change: tf.function(change)()):
        v = tf.Variable([1.0, 2.0, 3.0])
        np.testing.assert_allclose(run(lambda v=v: getattr(v, method)(slices)), expected, rtol=1e-6)
        np.testing.assert_allclose(v.numpy(), expected, rtol=1e-6)


def test_slices_of_several_axes_and_what_gradients_are_not() -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    assert v.scatter_nd_update([[1]], [5.0]).numpy().tolist() == [1.0, 5.0, 3.0]
    assert v.scatter_nd_add([[1], [2]], [1.0, 1.0]).numpy().tolist() == [1.0, 6.0, 4.0]
    assert v.scatter_nd_sub([[0]], [1.0]).numpy().tolist() == [0.0, 6.0, 4.0]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(v, [1]))
    assert not isinstance(tape.gradient(loss, v), tf.IndexedSlices)
    assert isinstance(tf.TensorSpec([1]), tf.TypeSpec)
    assert not isinstance(v, tf.TypeSpec)


def test_backing_device() -> None:
    assert tf.ones(2).backing_device == "/job:localhost/replica:0/task:0/device:CPU:0"


def test_a_tensor_of_a_compiled_function_is_on_no_device_yet() -> None:
    seen: list[str] = []

    @tf.function
    def step(x: Any) -> Any:
        ones: Any = tf.ones(2)
        seen.extend([x.device, ones.device, (x + ones).device])
        return x

    step(tf.ones(2))
    assert set(seen) == {""}


@pytest.mark.parametrize("compiled", [False, True])
def test_a_large_number_beside_a_tensor(compiled: bool) -> None:
    """Attention hides what is padded by -2**32 + 1, which TensorFlow makes a number of the tensor's dtype."""

    def apply(x: Any) -> list[Any]:
        return [x * (-(2**32) + 1), 2**40 - x, x < 2**40, tf.multiply(x, 2**33), tf.where(x > 0, x, -(2**32))]

    with tf.GradientTape():  # where operators are TensorFlow's
        found = (tf.function(apply) if compiled else apply)(tf.constant([0.0, 1.0]))
    assert [each.numpy().tolist() for each in found] == [
        [0.0, -(2.0**32)],
        [2.0**40, 2.0**40],
        [True, True],
        [0.0, 2.0**33],
        [-(2.0**32), 1.0],
    ]
    with pytest.raises(OverflowError):
        _ = tf.constant([1]) * 2**40


@pytest.mark.parametrize("compiled", [False, True])
def test_a_variable_is_an_index(compiled: bool) -> None:
    rows, place = tf.Variable([[1.0, 2.0], [3.0, 4.0]]), tf.Variable(1)

    def run() -> Any:
        return rows[place], tf.constant([5.0, 6.0])[place], rows[0, place]

    row, number, other = (tf.function(run) if compiled else run)()
    assert (row.numpy().tolist(), float(number), float(other)) == ([3.0, 4.0], 6.0, 2.0)
