"""Loops of compiled functions: steps of a strategy in them, and long ones over numbers that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError
from stratagem.program import computed_range, loops
from stratagem.program.computed_range import MOST_UNROLLED

TURNS = MOST_UNROLLED + 6

STRATEGIES = {
    "one": lambda: tf.distribute.OneDeviceStrategy("cpu:0"),
    "two": lambda: tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]),
}


def computed(step: Callable[[], Any]) -> None:
    @tf.function
    def run(turns: Any) -> None:
        for _ in tf.range(turns):
            step()

    run(tf.constant(TURNS))


def known(step: Callable[[], Any]) -> None:
    @tf.function
    def run() -> None:
        for _ in tf.range(TURNS):
            step()

    run()


def as_long_as(step: Callable[[], Any]) -> None:
    @tf.function
    def run() -> None:
        turn = tf.constant(0)
        while turn < TURNS:
            step()
            turn += 1

    run()


def while_loop(step: Callable[[], Any]) -> None:
    @tf.function
    def run() -> None:
        def body(turn: Any) -> Any:
            step()
            return (turn + 1,)

        tf.while_loop(lambda turn: turn < TURNS, body, (tf.constant(0),))

    run()


def function_in_loop(step: Callable[[], Any]) -> None:
    inner = tf.function(step)

    @tf.function
    def run(turns: Any) -> None:
        for _ in tf.range(turns):
            inner()

    run(tf.constant(TURNS))


def twice_in_a_branch(step: Callable[[], Any]) -> None:
    @tf.function
    def run(is_due: Any) -> None:
        if is_due:
            step()
            step()

    for turn in range(TURNS):
        run(tf.constant(turn % 2 == 0))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("devices", STRATEGIES)
@pytest.mark.parametrize("loop", [computed, known, as_long_as, while_loop, function_in_loop, twice_in_a_branch])
def test_steps_of_a_strategy_follow_one_another(loop: Callable[[Callable[[], Any]], None], devices: str) -> None:
    """Each turn began with what the variables held before the loop: of all turns one was done."""

    def trained(run: Callable[[Callable[[], Any]], None]) -> tuple[Any, Any, Any]:
        strategy = STRATEGIES[devices]()
        with strategy.scope():
            weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
            optimizer = tf.keras.optimizers.Adam(0.01)
            optimizer.build([weight])
            mean = tf.keras.metrics.Mean()

        def step(rows: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss((weight * rows - 3.0) ** 2, global_batch_size=4)
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
            mean.update_state(rows * weight)
            return loss

        data = tf.data.Dataset.from_tensor_slices(np.arange(4, dtype="float32")).batch(4)
        batch = next(iter(strategy.experimental_distribute_dataset(data)))
        run(lambda: strategy.run(step, args=(batch,)))
        return weight.numpy(), mean.result().numpy(), optimizer.iterations.numpy()

    def one_by_one(step: Callable[[], Any]) -> None:
        run = tf.function(step)
        for _ in range(TURNS):
            run()

    assert trained(loop) == trained(one_by_one)


@tf.function
def sums(x: Any) -> Any:
    for i in tf.range(1, 1001):
        last = tf.cast(i, tf.float32)
        x = x + last
    return x, last  # pyright: ignore[reportPossiblyUnboundVariable]


@tf.function
def left_early(x: Any) -> Any:
    for i in tf.range(1000):
        if i > 50:
            break
        if i % 2 == 0:
            continue
        x = x + i
    return x


@tf.function
def left_at_once(x: Any) -> Any:
    for i in tf.range(1000):
        x += 1
        if i == 0:
            break
    return x


@tf.function
def nested(x: Any) -> Any:
    for i in tf.range(100):
        for j in tf.range(3):
            x += i * j
    return x


@tf.function
def written() -> Any:
    array = tf.TensorArray(tf.int32, size=100)
    for i in tf.range(100):
        array = array.write(i, i**2)
    return tf.reduce_sum(array.stack())


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: sums(0.0), [500500.0, 1000.0]),
        (lambda: left_early(0), sum(range(1, 51, 2))),
        (lambda: left_at_once(0), 1),
        (lambda: nested(0), sum(i * j for i in range(100) for j in range(3))),
        (written, sum(i**2 for i in range(100))),
    ],
)
def test_long_loops_have_the_numbers_of_python(call: Callable[[], Any], found: Any) -> None:
    np.testing.assert_array_equal([np.asarray(each) for each in np.atleast_1d(call())], np.atleast_1d(found))


def test_a_long_loop_is_a_loop_of_the_program() -> None:
    turns = []

    def turn(x: Any) -> Any:
        turns.append(x)
        return tf.sin(x)

    @tf.function
    def run(x: Any) -> Any:
        for _ in tf.range(1000):
            x = turn(x)
        return x

    expected = np.float32(0.5)
    for _ in range(1000):
        expected = np.sin(expected)
    np.testing.assert_allclose(run(tf.constant(0.5)), expected, rtol=1e-5)
    assert len(turns) < 20


def test_gradients_go_through_a_long_loop() -> None:
    def last(x: Any) -> Any:
        for i in tf.range(100):
            x = tf.sin(x) + 0.001 * tf.cast(i, tf.float32)
        return x

    @tf.function
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = last(x)
        return tape.gradient(y, x)

    def unrolled(x: Any) -> Any:
        for i in range(100):
            x = jax.numpy.sin(x) + np.float32(0.001) * np.float32(i)
        return x

    np.testing.assert_allclose(gradient(tf.constant(1.5)), jax.grad(unrolled)(1.5), rtol=1e-4)


NAMES = [str(number) for number in range(100)]


@tf.function
def indexed(x: Any) -> Any:
    for i in tf.range(100):
        x = x + len(NAMES[i])
    return x


@tf.function
def appended(x: Any) -> Any:
    found = []
    for i in tf.range(100):
        found.append(x * i)
    return tf.add_n(found)


@tf.function
def collected(x: Any) -> Any:
    return tf.add_n([x * i for i in tf.range(100)])


@tf.function
def grown(x: Any) -> Any:
    for _ in tf.range(70):
        x = tf.concat([x, x[-1:] + 1], 0)
    return tf.reduce_sum(x)


@pytest.mark.parametrize(
    ("function", "argument", "found"),
    [(indexed, 0, 190), (appended, 2, 9900), (collected, 2, 9900), (grown, [0], sum(range(71)))],
)
def test_what_no_compiled_loop_can_is_traced_turn_by_turn(function: Any, argument: Any, found: int) -> None:
    assert function(tf.constant(argument)).numpy() == found


def test_an_error_of_the_body_is_its_own() -> None:
    @tf.function
    def run(x: Any) -> Any:
        for _ in tf.range(100):
            x = tf.reshape(x, [2, 2])
        return x

    with pytest.raises(TypeError, match=r"cannot reshape array of shape \(3,\)"):
        run(tf.zeros([3]))


def test_a_value_of_replicas_that_a_loop_makes_is_shown_in_its_error() -> None:
    strategy = STRATEGIES["two"]()

    @tf.function
    def run(turns: Any) -> Any:
        last: Any = 0.0
        for _ in tf.range(turns):
            last = strategy.run(lambda: tf.constant(1.0))
        return last

    with pytest.raises(InputError, match=r"changes `last` from 0\.0 to PerReplica\(float32\[2\]\)"):
        run(tf.constant(3))


def test_short_loops_are_unrolled() -> None:
    assert computed_range.MOST_UNROLLED == loops.MOST_UNROLLED == 64
    turns = []

    @tf.function
    def run(x: Any) -> Any:
        for i in tf.range(64):
            turns.append(i)
            x = x + len(NAMES[i])
        return x

    assert run(tf.constant(0)).numpy() == 10 + 2 * 54
    assert turns[:64] == list(range(64))
