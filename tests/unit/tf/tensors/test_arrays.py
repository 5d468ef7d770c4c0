"""`tf.TensorArray`: TensorFlow's numbers, eager and compiled, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError

Array = tf.TensorArray


def filled() -> Any:
    return Array(tf.float32, 3, infer_shape=False).split([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 2, 3])


def in_a_loop(known: bool) -> Any:
    array = Array(tf.float32, 0, dynamic_size=True)
    for i in tf.range(3) if known else range(3):
        array = array.write(i, [float(i), 1.0])
    return array.stack()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize(
    ("function", "tensorflows"),
    [
        (lambda: Array(tf.float32, 3).write(1, [1.0, 2.0]).stack(), [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]),
        (lambda: Array(tf.float32, 3, element_shape=[2]).stack(), [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
        (lambda: Array(tf.float32, 0, dynamic_size=True).write(3, 1.0).stack(), [0.0, 0.0, 0.0, 1.0]),
        (lambda: Array(tf.float32, 0, dynamic_size=True).write(3, 1.0).size(), 4),
        (lambda: Array(tf.float32, 3).unstack([[1.0], [2.0], [3.0]]).read(1), [2.0]),
        (lambda: Array(tf.float32, 3).unstack([[1.0], [2.0], [3.0]]).gather([2, 0]), [[3.0], [1.0]]),
        (lambda: Array(tf.float32, 3).unstack([[1.0], [2.0], [3.0]]).concat(), [1.0, 2.0, 3.0]),
        (lambda: Array(tf.float32, 4).scatter([3, 1], [1.0, 3.0]).stack(), [0.0, 3.0, 0.0, 1.0]),
        (lambda: Array(tf.float32, 1, dynamic_size=True).scatter([3, 1], [1.0, 3.0]).stack(), [0.0, 3.0, 0.0, 1.0]),
        (lambda: filled().concat(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (lambda: filled().read(1), [2.0, 3.0]),
        (lambda: Array(tf.float32, 2).write(0, 1).stack(), [1.0, 0.0]),
        (lambda: in_a_loop(known=True), [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]),
        (lambda: in_a_loop(known=False), [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]),
    ],
)
def test_the_numbers_are_tensorflows(function: Callable[[], Any], tensorflows: Any, compiled: bool) -> None:
    np.testing.assert_array_equal((tf.function(function) if compiled else function)(), tensorflows)


def test_what_is_written_stays_only_outside_of_functions() -> None:
    def unused() -> Any:
        array = Array(tf.float32, 2, element_shape=[])
        array.write(0, 1.0)
        return array.stack()

    assert np.asarray(unused()).tolist() == [1.0, 0.0]
    assert np.asarray(tf.function(unused)()).tolist() == [0.0, 0.0]  # as in TensorFlow


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: Array(tf.float32, 3).stack(), "without tensors and without element_shape"),
        (lambda: Array(tf.float32, 1).write(3, 1.0), "write to index 3 but array is not resizeable and size is: 1"),
        (lambda: Array(tf.float32, 2).read(5), "read from index 5 but array size is: 2"),
        (
            lambda: Array(tf.float32, 2).unstack([1.0, 2.0, 3.0]),
            "unstack 3 tensors into a TensorArray of static size 2",
        ),
        (lambda: Array(tf.float32, 2).write(0, 1.0).write(1, [1.0]), r"Incompatible shape for value \(\(1,\)\)"),
        (lambda: Array(tf.float32, 2).write(0, tf.constant(1)), "is trying to write dtype int32"),
        (lambda: Array(tf.float32), "was given no size"),
    ],
)
def test_what_is_refused(function: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        function()
    with pytest.raises(InputError, match=said):
        tf.function(function)()


def counted(n: Any) -> Any:
    array = Array(tf.float32, 5)
    for i in tf.range(n):
        array = array.write(i, tf.stack([tf.cast(i, tf.float32), 1.0]))
    return array.stack()


def until(n: Any) -> Any:
    array = Array(tf.float32, 5)
    for i in tf.range(5):
        if i >= n:
            break
        array = array.write(i, tf.stack([tf.cast(i, tf.float32), 1.0]))
    return array.stack()


def while_loop(n: Any) -> Any:
    def body(i: Any, array: Any) -> Any:
        return i + 1, array.write(i, tf.stack([tf.cast(i, tf.float32), 1.0]))

    return tf.while_loop(lambda i, _: i < n, body, (0, Array(tf.float32, 5)))[1].stack()


@pytest.mark.parametrize("function", [counted, until, while_loop])
def test_loops_of_computed_length(function: Callable[[Any], Any]) -> None:
    compiled = tf.function(function)
    for n in (1, 3, 5):
        expected = np.zeros((5, 2))
        expected[:n] = [[i, 1] for i in range(n)]
        np.testing.assert_array_equal(compiled(tf.constant(n)), expected)
        np.testing.assert_array_equal(function(tf.constant(n)), expected)


def test_a_number_outside_that_a_loop_computes_is_refused() -> None:
    def read(n: Any) -> Any:
        array, total = Array(tf.float32, 3).unstack([1.0, 2.0, 3.0]), 0.0
        for i in tf.range(n):
            total += array.read(i)
        return total

    compiled = tf.function(read)
    assert float(compiled(tf.constant(3))) == 6.0
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)read from index but array size is: 3.*3; 3"):
        compiled(tf.constant(4))
    with pytest.raises(tf.errors.InvalidArgumentError, match="write to index but array is not resizeable"):
        tf.function(counted)(tf.constant(6))


def test_a_branch_writes() -> None:
    @tf.function
    def either(n: Any) -> Any:
        array = Array(tf.float32, 3)
        if n > 3:
            array = array.write(0, [1.0])
        else:
            array = array.write(1, [2.0])
        return array.stack()

    assert either(tf.constant(5)).tolist() == [[1.0], [0.0], [0.0]]
    assert either(tf.constant(2)).tolist() == [[0.0], [2.0], [0.0]]


def test_what_grows_needs_known_numbers() -> None:
    @tf.function
    def grows(n: Any) -> Any:
        array = Array(tf.float32, 0, dynamic_size=True)
        for i in tf.range(n):
            array = array.write(i, 1.0)
        return array.stack()

    with pytest.raises(InputError, match="of size 0 with dynamic_size=True is written at an index that the function"):
        grows(tf.constant(3))


def test_gradients_go_through_it() -> None:
    def slope(x: Any, n: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            w, array = x, Array(tf.float32, 4, element_shape=[])
            for i in tf.range(n):
                array = array.write(i, tf.reduce_sum(w))
                w = w * x
            loss = tf.reduce_sum(array.stack() * tf.constant([1.0, 2.0, 3.0, 4.0]))
        return tape.gradient(loss, x)

    compiled = tf.function(slope)
    x = np.array([1.5, 2.0], "float32")
    for n in (1, 2, 4):
        expected = sum((i + 1) * (i + 1) * x**i for i in range(n))
        np.testing.assert_allclose(compiled(tf.constant(x), tf.constant(n)), expected, rtol=1e-6)
        np.testing.assert_allclose(slope(tf.constant(x), tf.constant(n)), expected, rtol=1e-6)


NOTHING: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "stack": (lambda: Array(tf.float32, 0).stack(), (0,), None),
    "stack, growing": (lambda: Array(tf.float32, 0, dynamic_size=True).stack(), (0,), None),
    "stack, sizes unknown": (lambda: Array(tf.float32, 0, element_shape=(None, 2)).stack(), (0,), None),
    "stack, shape": (lambda: Array(tf.float32, 0, element_shape=(2,)).stack(), (0, 2), (0, 2)),
    "stack, numbers": (lambda: Array(tf.float32, 0, element_shape=()).stack(), (0,), (0,)),
    "stack, room": (lambda: Array(tf.float32, 2).stack(), None, None),
    "stack, room of unknown sizes": (lambda: Array(tf.float32, 2, element_shape=(None,)).stack(), None, None),
    "stack, room of a shape": (lambda: Array(tf.float32, 2, element_shape=(2,)).stack(), (2, 2), (2, 2)),
    "concat": (lambda: Array(tf.float32, 0).concat(), None, None),
    "concat, shape": (lambda: Array(tf.float32, 0, element_shape=(None, 2)).concat(), None, (0, 2)),
    "concat, room of a shape": (lambda: Array(tf.float32, 2, element_shape=(2,)).concat(), (4,), (4,)),
    "gather": (lambda: Array(tf.float32, 2).gather(tf.zeros([0], tf.int32)), (0,), None),
    "gather, shape": (
        lambda: Array(tf.float32, 2, element_shape=(2,)).gather(tf.zeros([0], tf.int32)),
        (0,),
        (0, 2),
    ),
    "unstack": (lambda: Array(tf.float32, 0).unstack(tf.zeros([0, 3])).stack(), (0,), (0, 3)),
    "unstack, growing": (
        lambda: Array(tf.float32, 0, dynamic_size=True).unstack(tf.zeros([0, 3])).stack(),
        (0,),
        (0, 3),
    ),
}
"""Without a tensor: a function, and TensorFlow's shape when nothing is compiled and when it is; None for an error."""


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_was_written(case: str) -> None:
    function, *shapes = NOTHING[case]
    for run, shape in zip((function, tf.function(function)), shapes, strict=True):
        if shape is None:
            with pytest.raises(InputError, match="TensorArray"):
                run()
        else:
            np.testing.assert_array_equal(np.asarray(run()), np.zeros(shape, "float32"), strict=True)


@tf.function
def _written_in_a_loop(x: Any, size: int, dynamic: bool) -> Any:
    array = Array(tf.float32, size, dynamic_size=dynamic)
    for i in tf.range(tf.shape(x)[0]):
        array = array.write(i, tf.ones([2]))
    return array.stack()


@pytest.mark.parametrize(
    ("size", "dynamic", "shape"), [(0, True, (0, 2)), (0, False, (0, 2)), (3, False, (3, 2)), (3, True, (3, 2))]
)
def test_a_loop_without_turns_gives_the_shape(size: int, dynamic: bool, shape: tuple[int, int]) -> None:
    """TensorFlow traces the body of such a loop, so the graph knows the shape of the tensors."""
    stacked = _written_in_a_loop(tf.zeros([0, 5]), size, dynamic)
    assert np.shape(stacked) == shape
    assert np.asarray(stacked).sum() == 0.0


def test_a_loop_without_turns_changes_nothing_else() -> None:
    total, seen = tf.Variable(1.0), []

    @tf.function
    def run(x: Any) -> Any:
        array, count = Array(tf.float32, 2), 0
        for _ in tf.range(tf.shape(x)[0]):
            total.assign_add(1.0)
            count += 1
            array = array.write(0, [1.0])
        seen.append(count)
        return array.stack()

    assert run(tf.zeros([0])).tolist() == [[0.0], [0.0]]
    assert float(total) == 1.0
    assert set(seen) == {0}
