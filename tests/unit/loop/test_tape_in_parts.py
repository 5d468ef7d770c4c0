"""Tapes that begin in a branch, a loop or a map of a compiled function, which JAX traces by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import UsageError

STRATEGIES = {
    "one": lambda: tf.distribute.OneDeviceStrategy("cpu:0"),
    "two": lambda: tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]),
}
TURNS = 70
"""More than are unrolled where their number is known."""

Step = Callable[..., Any]


def known(run: Callable[..., Any], step: Step) -> None:
    def turns(*batch: Any) -> Any:
        loss = 0.0
        for _ in tf.range(TURNS):
            loss = step(*batch)
        return loss

    run(turns)


def computed(run: Callable[..., Any], step: Step) -> None:
    def turns(*batch: Any) -> Any:
        loss = 0.0
        for _ in tf.range(batch[2]):
            loss = step(*batch)
        return loss

    run(turns, tf.constant(TURNS))


def in_branch(run: Callable[..., Any], step: Step) -> None:
    def turn(*batch: Any) -> Any:
        loss = 0.0
        if batch[2] > 0:
            loss = step(*batch)
        return loss

    for number in range(2 * TURNS):
        run(turn, tf.constant(number % 2))


@pytest.mark.parametrize(
    ("loop", "devices"),
    [
        (known, "two"),
        pytest.param(known, "one", marks=pytest.mark.thorough),
        *(
            pytest.param(loop, name, marks=pytest.mark.thorough)
            for loop in (computed, in_branch)
            for name in STRATEGIES
        ),
    ],
)
def test_a_step_trains_there_as_by_itself(loop: Callable[..., None], devices: str) -> None:
    def trained(loop: Callable[..., None]) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        strategy, layers = STRATEGIES[devices](), tf.keras.layers
        with strategy.scope():
            model = tf.keras.Sequential(
                [layers.Input((3,)), layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(1)]
            )
            optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
            mean = tf.keras.metrics.Mean()

        def step(x: Any, y: Any, *_: Any) -> Any:
            with tf.GradientTape() as tape:
                errors = tf.reduce_sum((model(x, training=True) - y) ** 2, -1)
                loss = tf.nn.compute_average_loss(errors, global_batch_size=8)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            mean.update_state(loss)
            return loss

        x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
        data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8)
        batch = next(iter(strategy.experimental_distribute_dataset(data)))
        loop(lambda function, *more: strategy.run(function, args=(*batch, *more)), step)
        return [*model.get_weights(), *(np.asarray(each) for each in optimizer.variables), mean.result().numpy()]

    def one_by_one(run: Callable[..., Any], step: Step) -> None:
        for _ in range(TURNS):
            run(step)

    for found, expected in zip(trained(loop), trained(one_by_one), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


weight = tf.Variable(2.0)


def slope(x: Any, unconnected: str = "none") -> Any:
    with tf.GradientTape() as tape:
        loss = (weight * x) ** 2
    return tape.gradient(loss, weight, unconnected_gradients=unconnected)


def by_branch(x: Any) -> Any:
    found = 0.0
    if x > 0.0:
        found = slope(x)
    return found


def by_branch_of_keras(x: Any) -> Any:
    return keras.ops.cond(x > 0.0, lambda: slope(x, "zero"), lambda: 0.0 * x)


def by_map(x: Any) -> Any:
    return tf.map_fn(slope, tf.stack([x, x]))[1]


def by_vectorized_map(x: Any) -> Any:
    return tf.vectorized_map(slope, tf.stack([x, x]))[1]


def of_a_tensor(x: Any) -> Any:
    found = 0.0
    if x > 0.0:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = (weight * x) ** 2
        found = tape.gradient(loss, x) * 3.0 / weight
    return found * weight / 2.0


def of_a_gradient(x: Any) -> Any:
    found = 0.0
    if x > 0.0:
        with tf.GradientTape() as outer:
            outer.watch(x)
            first = slope(x)
        found = outer.gradient(first, x)
    return found * x / 2.0


def through_a_branch(x: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = 0.0
        if x > 0.0:
            with tf.GradientTape() as inner:
                inner.watch(x)
                squares = (weight * x) ** 2
            loss = inner.gradient(squares, x)  # 2 x weight ** 2
    return tape.gradient(loss, weight) * x / 2.0


def asked_in_a_branch(x: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = (weight * x) ** 2
    found = 0.0
    if x > 0.0:
        found = tape.gradient(loss, weight)
    else:
        found = -tape.gradient(loss, weight)
    return found


def asked_in_a_loop(x: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        loss = (weight * x) ** 2
    found = 0.0
    for _ in tf.range(2):
        found += tape.gradient(loss, weight) / 2.0
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        asked_in_a_branch,
        asked_in_a_loop,
        by_branch,
        by_branch_of_keras,
        by_map,
        by_vectorized_map,
        of_a_tensor,
        of_a_gradient,
        through_a_branch,
    ],
)
def test_gradients_are_not_lost(function: Callable[[Any], Any]) -> None:
    """They were None, or zeros where those were asked for."""
    assert tf.function(function)(tf.constant(3.0)).numpy() == 36.0


def test_what_a_tape_has_seen_is_used_after_it() -> None:
    @tf.function
    def run(x: Any) -> Any:
        found = [0.0, 0.0, 0.0]
        if x > 0.0:
            with tf.GradientTape() as tape:
                loss = (weight * x) ** 2
            found = [tape.gradient(loss, weight), loss, jnp.mean(loss) + 1.0]
        return found

    assert [each.numpy() for each in run(tf.constant(3.0))] == [36.0, 36.0, 37.0]


def test_a_tape_is_asked_once_in_a_branch() -> None:
    @tf.function
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = weight * x
        found = 0.0
        if x > 0.0:
            found = tape.gradient(loss, weight) + tape.gradient(loss, weight)
        return found

    with pytest.raises(UsageError, match="called twice on a tape that is not persistent"):
        run(tf.constant(3.0))
