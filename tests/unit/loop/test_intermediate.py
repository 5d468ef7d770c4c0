"""Gradients by tensors in the middle of a computation; the numbers are TensorFlow 2.21's for the same functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import UsageError

ops = keras.ops
Run = Callable[..., Any]


def at_once(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def in_a_function(fn: Callable[..., Any], *args: Any) -> Any:
    return stratagem.function(fn)(*args)


def on_one(fn: Callable[..., Any], *args: Any) -> Any:
    return stratagem.OneDeviceStrategy("cpu:0").run(fn, args=args)


def on_two(fn: Callable[..., Any], *args: Any) -> Any:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    found = strategy.run(fn, args=args)

    def second(leaf: Any) -> Any:
        return None if leaf is None else strategy.experimental_local_results(leaf)[1]

    return keras.tree.map_structure(second, found)


@pytest.fixture(params=[at_once, in_a_function, on_one, on_two])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


W = keras.Variable([[0.5], [-0.25]])
S = keras.Variable(3.0)
X = jnp.asarray([[1.0, 2.0], [3.0, -1.0]])


def alone(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        loss = ops.sum(y * y)
    return tape.gradient(loss, y)


def beside_a_variable(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        loss = ops.sum(y * y)
    return tape.gradient(loss, [W, y])


def a_chain() -> Any:
    with stratagem.GradientTape() as tape:
        y = S * 2.0
        z = y * y
        loss = z + y
    return tape.gradient(loss, [S, y, z, loss])


def a_persistent_tape() -> Any:
    with stratagem.GradientTape(persistent=True) as tape:
        y = S * 2.0
        z = y * y
    return [tape.gradient(z, y), tape.gradient(y, S), tape.gradient(z, S), tape.gradient(y, z)]


def of_a_watched_tensor(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        tape.watch(x)
        y = x * 2.0
        loss = ops.sum(y * y * x)
    return tape.gradient(loss, [x, y])


def before_the_tape() -> Any:
    y = S * 2.0
    with stratagem.GradientTape() as tape:
        loss = y * S
    return tape.gradient(loss, [y, S])


def of_a_constant(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = x * 2.0
        loss = ops.sum(y) * S
    return tape.gradient(loss, [y, S])


def while_stopped() -> Any:
    with stratagem.GradientTape() as tape:
        with tape.stop_recording():
            y = S * 2.0
        loss = y * S
    return tape.gradient(loss, [y, S])


def unconnected() -> Any:
    with stratagem.GradientTape() as tape:
        y = S * 2.0
        z = S * 3.0
        loss = z * z
    return tape.gradient(loss, [y, z])


def twice_the_same() -> Any:
    with stratagem.GradientTape() as tape:
        y = S * 2.0
        loss = y * y
    return tape.gradient(loss, [y, y])


def under_another_tape() -> Any:
    with stratagem.GradientTape() as outer:
        with stratagem.GradientTape() as inner:
            y = S * S
            loss = y * y * y
        slope = inner.gradient(loss, y)
    return [slope, outer.gradient(slope, S)]


def by_both_tapes() -> Any:
    with stratagem.GradientTape() as outer:
        y = S * S
        with stratagem.GradientTape() as inner:
            inner.watch(y)
            loss = y * y * y
        slope = inner.gradient(loss, y)
        total = slope + y
    return [slope, outer.gradient(total, [y, S])]


def a_jacobian(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        z = y * y
    return tape.jacobian(z, y)


def a_batch_jacobian(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        z = ops.concatenate([y * y, y * 3.0], axis=1)
    return tape.batch_jacobian(z, y)


def with_weights(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        z = y * y
    return tape.gradient(z, y, output_gradients=ops.convert_to_tensor([[1.0], [10.0]]))


def integers(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        i = ops.argmax(x, axis=1)
        y = ops.matmul(x, W)
        loss = ops.sum(y * ops.cast(i, "float32"))
    return tape.gradient(loss, [i, y])


def watching_by_hand() -> Any:
    with stratagem.GradientTape(watch_accessed_variables=False) as tape:
        y = S * 2.0
        tape.watch(W)
        z = y * ops.sum(W.value)
    return tape.gradient(z, [y, W, z])


def through_a_choice(x: Any) -> Any:
    with stratagem.GradientTape() as tape:
        y = ops.matmul(x, W)
        z = ops.where(y > 0.0, y * 2.0, y * 3.0)
        loss = ops.sum(z * y)
    return tape.gradient(loss, [y, z])


def zeros_where_unconnected() -> Any:
    with stratagem.GradientTape() as tape:
        y = S * 2.0
        z = S * 3.0
    return tape.gradient(z, [y, z], unconnected_gradients="zero")


TENSORFLOW: dict[Callable[..., Any], Any] = {
    alone: [[0.0], [3.5]],
    beside_a_variable: [[[10.5], [-3.5]], [[0.0], [3.5]]],
    a_chain: [26.0, 13.0, 1.0, 1.0],
    a_persistent_tape: [12.0, 2.0, 24.0, None],
    of_a_watched_tensor: [[[12.0, 48.0], [108.0, 12.0]], [[4.0, 16.0], [36.0, 4.0]]],
    before_the_tape: [None, 6.0],
    of_a_constant: [None, 10.0],
    while_stopped: [None, 6.0],
    unconnected: [None, 18.0],
    twice_the_same: [12.0, 12.0],
    under_another_tape: [243.0, 324.0],
    by_both_tapes: [243.0, [55.0, 330.0]],
    a_jacobian: [[[[0.0], [0.0]]], [[[0.0], [3.5]]]],
    a_batch_jacobian: [[[0.0], [3.0]], [[3.5], [3.0]]],
    with_weights: [[0.0], [35.0]],
    integers: [None, [[1.0], [1.0]]],
    watching_by_hand: [None, [[6.0], [6.0]], 1.0],
    through_a_choice: [[[0.0], [7.0]], [[0.0], [1.75]]],
    zeros_where_unconnected: [0.0, 1.0],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("function", TENSORFLOW, ids=lambda function: function.__name__)
def test_as_in_tensorflow(function: Callable[..., Any], run: Run) -> None:
    found = run(function, *([X] if function.__code__.co_argcount else []))
    leaves = keras.tree.map_structure(lambda leaf: None if leaf is None else np.asarray(leaf).tolist(), found)
    assert leaves == TENSORFLOW[function]


def test_a_class_activation_map(run: Run) -> None:
    """Grad-CAM: the score of a class, by the output of the last convolution."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 1))
    features = keras.layers.Conv2D(2, 3, activation="tanh")(inputs)
    scores = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(features))
    model = keras.Model(inputs, [features, scores])
    weights = model.layers[-1].kernel
    image = jnp.asarray(np.random.default_rng(0).normal(size=(1, 6, 6, 1)), "float32")

    def maps(image: Any) -> Any:
        with stratagem.GradientTape() as tape:
            features, scores = model(image)
            score = scores[:, 1]
        return tape.gradient(score, features)

    expected = np.broadcast_to(np.asarray(weights)[:, 1] / 16, (1, 4, 4, 2))
    np.testing.assert_allclose(run(maps, image), expected, rtol=1e-6)


def test_a_penalty_on_the_gradient_by_a_hidden_layer(run: Run) -> None:
    """An outer tape differentiates by variables what an inner one found for a tensor in the middle."""

    def penalty(x: Any) -> Any:
        with stratagem.GradientTape() as outer:
            with stratagem.GradientTape() as inner:
                hidden = ops.matmul(x, W) * S
                loss = ops.sum(hidden**3)
            slope = inner.gradient(loss, hidden)
            total = ops.sum(slope)
        return outer.gradient(total, [W, S])

    hidden = np.asarray(X) @ np.asarray(W) * 3.0
    by_w, by_s = run(penalty, X)
    np.testing.assert_allclose(by_w, np.asarray(X).T @ (6 * hidden) * 3.0, rtol=1e-6)
    np.testing.assert_allclose(by_s, np.sum(6 * hidden * hidden / 3.0), rtol=1e-6)


def test_a_part_that_would_be_missing_is_refused() -> None:
    """Outside compiled functions it is there."""

    def fn() -> Any:
        with stratagem.GradientTape() as outer:
            with stratagem.GradientTape() as inner:
                y = S * S
                loss = y * y * y
            slope = inner.gradient(loss, y)
        return outer.gradient(slope, y)

    assert float(fn()) == 54.0
    with pytest.raises(UsageError, match=r"inner\.watch\(tensor\)"):
        on_one(fn)
