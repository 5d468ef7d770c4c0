"""Functions whose Python asks for values of tensors: rewritten, with TensorFlow's numbers; what is not says why."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import InputError, UsageError


def branches(x: Any) -> Any:
    y: Any = 0.0
    if x > 2.0:
        y = x * 2.0
    elif x > 0.0 and not x == 1.0:  # noqa: SIM201 - `not` is what is tested
        y += x
    else:
        y = -x
    return y


def early(x: Any) -> Any:
    if x > 2.0:
        return x
    if 0.0 < x < 1.0 or x == 2.0:
        z = x * 10.0
        return z
    return -x


def collatz(n: Any) -> Any:
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return n, steps


def ranges(n: Any) -> Any:
    total, last = 0, -1
    for i in tf.range(n):
        for j in range(1, i, 2):
            total += i * j
        last = i
    for i in tf.range(n, 0, -2):
        total = total * 2 + i
    return total, last


def expression(x: Any) -> Any:
    return x * 2.0 if x > 1.0 else x


def of_python(x: Any) -> Any:
    flags = {"double": True}
    if flags["double"] and len(flags) == 1:
        x = x * 2.0
    for k in [1, 2]:
        if k == 2:
            continue
        if x > 3.0:
            x = x - k
    return x


def helper(x: Any) -> Any:
    if x < 0.0:
        return -x
    return x


def nested(x: Any) -> Any:
    def inner(y: Any) -> Any:
        if y > 1.0:
            y = helper(-y) + 1.0
        return y

    return inner(x) + helper(x)


@pytest.mark.parametrize(
    ("function", "arguments", "tensorflows"),
    [
        (branches, [3.0, 1.5, 1.0, -4.0], [6.0, 1.5, -1.0, 4.0]),
        (early, [3.0, 0.5, 2.0, 1.5], [3.0, 5.0, 20.0, -1.5]),
        (collatz, [6, 27, 1], [(1, 8), (1, 111), (1, 0)]),
        (ranges, [5, 0, 2], [(195, 4), (0, -1), (2, 1)]),
        (expression, [3.0, 0.5], [6.0, 0.5]),
        (of_python, [3.0, 1.0], [5.0, 2.0]),
        (nested, [3.0, -2.0], [7.0, 0.0]),
    ],
)
def test_the_numbers_are_tensorflows(
    function: Callable[..., Any], arguments: list[Any], tensorflows: list[Any]
) -> None:
    compiled = tf.function(function)
    for argument, result in zip(arguments, tensorflows, strict=True):
        np.testing.assert_array_equal(compiled(tf.constant(argument)), result)


def broken(n: Any) -> Any:
    total, last = 0, -1
    for i in tf.range(n):
        if i == 3:
            continue
        total += i
        if total > 10:
            last = i
            break
        total += 1
    else:
        last = 100
    return total, last


def found(n: Any) -> Any:
    for i in tf.range(n):
        if i * i > 10:
            return i * 100
    return -1


def found_in_rows(n: Any) -> Any:
    for row in tf.stack([n, n * 2, n * 3]):
        if row > 10:
            return row, True
    return n - n, False


def forever(n: Any) -> Any:
    steps = 0
    while True:
        n = n // 2
        if n < 3:
            break
        steps += 1
    return n, steps


def leaving_two_loops(n: Any) -> Any:
    total = 0
    for i in tf.range(n):
        j = 0
        while j < i:
            j += 1
            if (i + j) % 3 == 0:
                continue
            if j > 4:
                break
            if total > 40:
                return total * 1000
            total += j
        if total > 30:
            total += 7
    return total


def of_known_length(n: Any) -> Any:
    total, i = 0, -1
    for i in tf.range(6):
        if i > n:
            break
        total = total * 2 + i
    for a, b in zip([1, 2, 3], [4, 5, 6], strict=True):
        if a == 2:
            continue
        if total > 3:
            total += b
    return total, i


def in_a_branch(n: Any) -> Any:
    y = n
    if n > 2:
        for i in tf.range(n):
            y += i
            if y > 20:
                return y, i
        y = y * 2
    return y, 0


def with_else(n: Any) -> Any:
    while n > 10:
        n -= 3
        if n == 8:
            break
    else:
        n += 1000
    return n


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "function",
    [broken, found, found_in_rows, forever, leaving_two_loops, of_known_length, in_a_branch, with_else],
)
def test_a_loop_is_left_as_python_leaves_it(function: Callable[..., Any]) -> None:
    compiled = tf.function(function)
    for n in (0, 1, 3, 5, 9, 20):
        eager = [int(value) for value in tf.nest.flatten(function(tf.constant(n)))]
        assert [int(value) for value in tf.nest.flatten(compiled(tf.constant(n)))] == eager


def test_gradients_go_through_loops_of_computed_length() -> None:
    w = tf.Variable([0.5, 2.0])

    @tf.function
    def slope(x: Any, n: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for i in tf.range(n):
                if i > 5:
                    break
                y = y * w
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, [x, w])

    # y is x * w ** m, for m of min(n, 6).
    for n, m in ((0, 0), (1, 1), (4, 4), (9, 6)):
        by_x, by_w = slope(tf.constant([1.0, 3.0]), tf.constant(n))
        np.testing.assert_allclose(by_x, np.array([0.5, 2.0]) ** m, rtol=1e-6)
        np.testing.assert_allclose(by_w, np.array([1.0, 3.0]) * m * np.array([0.5, 2.0]) ** max(m - 1, 0), rtol=1e-6)


def test_branches_and_loops_assign_variables() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def assigns(x: Any) -> Any:
        if x > 0.0:
            v.assign_add(x)
        i = 0
        while v < 10.0:
            v.assign(v * 2.0)
            i += 1
        return v + 0.0, i

    np.testing.assert_array_equal(assigns(tf.constant(2.0)), [12.0, 2])
    np.testing.assert_array_equal(assigns(tf.constant(-1.0)), [12.0, 0])
    assert float(v) == 12.0


class Counting:
    def __init__(self) -> None:
        self.count = tf.Variable(0)
        self.__scale = 2.0

    def scaled(self, x: Any) -> Any:
        return x * self.__scale


class Counter(Counting):
    @tf.function
    def scaled(self, x: Any) -> Any:
        if x > 1.0:
            self.count.assign_add(1)
            x = super().scaled(x)
        assert x < 100.0, "too large"
        return x


def test_methods_with_super_and_assert() -> None:
    counter = Counter()
    assert [float(counter.scaled(tf.constant(x))) for x in (3.0, 0.5)] == [6.0, 0.5]
    line = f"{Path(__file__)}:{Counter.scaled.python_function.__code__.co_firstlineno + 5}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"too large: an assertion does not hold, in {line}"):
        counter.scaled(tf.constant(70.0))
    assert int(counter.count) == 1  # not that of the failed call


class Positive(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        if tf.reduce_sum(x) > 0.0:
            y = x * 2.0
        else:
            y = x
        return y


class Halving(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.dense = Positive(), keras.layers.Dense(1, kernel_initializer="zeros")
        self.halved = tf.Variable(0.0, trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(self.layer(x))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        if loss > 0.5:
            self.halved.assign_add(1.0)
            gradients = [gradient * 0.5 for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_steps_and_layers_of_fit() -> None:
    x = np.ones((8, 1), "float32")
    with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        model = Halving()
        model.compile(keras.optimizers.SGD(0.1))
        plain = keras.Sequential([Positive(), keras.layers.Dense(1, kernel_initializer="ones")])
        plain.compile("sgd", "mse")
    model.fit(x, x, batch_size=4, verbose=0)
    # Half of 0.1 * 2 * 2 for the kernel; then the loss is 0.36 - the second step is a whole one.
    assert float(model.halved) == 1.0
    plain.fit(x, x, batch_size=4, verbose=0)
    assert plain.predict(x, verbose=0).shape == (8, 1)


def test_a_function_is_what_was_written_outside_of_tracing() -> None:
    code = early.__code__
    tf.function(early)(tf.constant(3.0))
    assert early.__code__ is code


def test_replicas_take_their_own_ways() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    rows = tf.data.Dataset.from_tensor_slices(np.array([3.0, 0.5, 1.5], "float32")).batch(2)
    found = []
    for batch in strategy.experimental_distribute_dataset(rows):
        found.append(strategy.reduce("SUM", strategy.run(lambda x: early(tf.reduce_sum(x)), args=(batch,)), axis=None))
    np.testing.assert_array_equal(found, [8.0, -1.5])


def test_numbers_of_python_stay_numbers_of_python() -> None:
    ways = []

    @tf.function
    def step(x: Any, k: int) -> Any:
        if k > 1:
            ways.append(k)
        if x > 0.0:
            x = x * k
        return x

    assert [float(step(tf.constant(3.0), k)) for k in (1, 2)] == [3.0, 6.0]
    assert set(ways) == {2}


def test_an_error_shows_the_line_of_the_program() -> None:
    @tf.function
    def fails(x: Any) -> Any:
        if x > 0.0:
            x = tf.matmul(x, x)
        return x

    with pytest.raises(Exception) as failed:  # noqa: PT011 - whatever the operation raises
        fails(tf.constant(1.0))
    lines = [frame.line for frame in traceback.extract_tb(failed.value.__traceback__) if frame.filename == __file__]
    assert lines[-1] == "x = tf.matmul(x, x)"


def unassigned(x: Any) -> Any:
    if x > 0.0:
        q = x
    return q  # pyright: ignore[reportPossiblyUnboundVariable]


def of_two_shapes(x: Any) -> Any:
    q = tf.zeros(3) if x > 0.0 else x
    return q


def growing(x: Any) -> Any:
    while tf.reduce_sum(x) < 10.0:
        x = tf.concat([x, x], 0)
    return x


def breaking(x: Any) -> Any:
    for kind in iter(["a", "b"]):
        if x > 3.0:
            break
        x = x + len(kind)
    return x


def of_words(x: Any) -> Any:
    for word in ["a", "b", "c"]:
        if x > 3.0:
            break
        x = x + len(word)
    return x


def appending(x: Any) -> Any:
    found = []
    while x < 3.0:
        found.append(x)
        x = x + 1.0
    return tf.stack(found)


def in_try(x: Any) -> Any:
    while x < 3.0:
        try:
            break
        finally:
            x = x + 1.0
    return x


def raising(x: Any) -> Any:
    if x > 0.0:
        raise ValueError("positive")
    return x


def changing(x: Any) -> Any:
    found = {}
    if x > 0.0:
        found["x"] = x
    return x


def of_rows(x: Any) -> Any:
    if x > 0.0:
        x = -x
    if x > tf.zeros(2):
        x = -x
    return x


def as_a_value(x: Any) -> Any:
    return tf.reduce_sum(tf.range(x))


@tf.autograph.experimental.do_not_convert
def as_written(x: Any) -> Any:
    if x > 0.0:
        return x
    return -x


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (unassigned, UsageError, "`q` is not assigned where the condition is false"),
        (of_two_shapes, UsageError, r"is float32\[3\] where the condition is true, else float32\[\]"),
        (lambda x: growing(x[None]), InputError, r"changes `x` from float32\[1\] to float32\[2\]"),
        (breaking, UsageError, "leaves a loop over a list_iterator by a `break`"),
        (of_words, UsageError, "leaves a loop over different kinds of elements \\('b', 'c'\\) by a `break`"),
        (appending, UsageError, "appends to the list `found` in a loop whose condition is a tensor"),
        (in_try, UsageError, "in a statement with a `break`, `continue` or `return` in a `with` or a `try`"),
        (raising, UsageError, "raises an error .* in a branch whose condition is a tensor"),
        (changing, UsageError, r"assigns `found\['x'\]` in a branch"),
        (of_rows, InputError, r"A condition is a tensor of shape \(2,\)"),
        (as_a_value, UsageError, "uses tf.range of a number that it computes, in .*tf.reduce_sum"),
        (lambda x: x if x > 0.0 else -x, UsageError, "<lambda> is not rewritten, as it is not written with def"),
        (as_written, UsageError, "it is not to be rewritten"),
    ],
)
def test_what_cannot_be_says_why(function: Callable[..., Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=f"(?s){said}"):
        tf.function(function)(tf.constant(1.0))


def test_without_autograph_nothing_is_rewritten() -> None:
    @stratagem.function(autograph=False)
    def step(x: Any) -> Any:
        if x > 0.0:
            return x
        return -x

    with pytest.raises(UsageError, match="it is not to be rewritten"):
        step(tf.constant(1.0))


def test_another_thread_rewrites_the_function_meanwhile() -> None:
    """Workers of parameter servers in threads of one process met it, and the second was refused."""
    others: list[Callable[[], Any]] = []

    def doubled(count: Any) -> Any:
        if others:
            others.pop()()
        total = 0.0
        for _ in tf.range(count):
            total += 2.0
        return total

    def run() -> float:
        return float(tf.function(doubled)(tf.constant(3)))

    def elsewhere() -> None:
        thread = threading.Thread(target=lambda: found.append(run()))
        thread.start()
        thread.join()

    found: list[float] = []
    others.append(elsewhere)
    assert run() == 6.0
    assert found == [6.0]
