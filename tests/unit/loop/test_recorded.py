"""Tapes outside compiled functions, as plain custom loops of Keras programs use them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.loop.compat import RecordedArray, concrete

X = np.random.default_rng(0).normal(size=(6, 4, 4)).astype("float32")
Y = np.array([0, 1, 2, 0, 1, 2])


def network() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Flatten(),
            keras.layers.Dense(4, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=3),
            keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.01)),
        ]
    )


loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def trained(steps: int) -> tuple[list[float], list[np.ndarray]]:
    """Train a network that is built under the first tape; return losses and weights."""
    keras.utils.set_random_seed(1)
    model, optimizer = network(), keras.optimizers.Adam(0.01)
    mean, accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()
    losses = []
    for _ in range(steps):
        with stratagem.GradientTape() as tape:
            logits = model(X, training=True)
            loss = loss_of(Y, logits) + sum(model.losses)
            accuracy.update_state(Y, logits)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        mean.update_state(loss)
        losses.append(loss)
    state = [*model.variables, *optimizer.variables, *mean.variables, *accuracy.variables]
    assert not any(isinstance(variable._value, jax.core.Tracer) for variable in state)
    assert float(mean.result()) == pytest.approx(np.mean([float(loss) for loss in losses]), rel=1e-6)
    return [float(loss) for loss in losses], [np.asarray(v) for v in model.weights]


def trained_by_jax(steps: int) -> tuple[list[float], list[np.ndarray]]:
    """The same, written for JAX alone."""
    keras.utils.set_random_seed(1)
    model, optimizer = network(), keras.optimizers.Adam(0.01)
    model.build(X.shape)
    optimizer.build(model.trainable_variables)

    @jax.jit
    def step(weights: Any, rest: Any, state: Any) -> Any:
        def loss(weights: Any) -> Any:
            result: Any = model.stateless_call(weights, rest, X, return_losses=True, training=True)
            logits, new, losses = result
            return loss_of(Y, logits) + sum(losses), new

        (value, rest_), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
        return value, rest_, *optimizer.stateless_apply(state, gradients, weights)

    weights, rest, state = (
        [v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    )
    losses = []
    for _ in range(steps):
        value, rest, weights, state = step(weights, rest, state)
        losses.append(float(value))
    for variable, value in zip(
        [*model.trainable_variables, *model.non_trainable_variables], [*weights, *rest], strict=True
    ):
        variable.assign(value)
    return losses, [np.asarray(v) for v in model.weights]


def test_a_loop_trains_as_one_written_for_jax() -> None:
    losses, weights = trained(2)
    expected_losses, expected_weights = trained_by_jax(2)
    np.testing.assert_allclose(losses, expected_losses, rtol=2e-5)
    for found, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


@pytest.mark.thorough
def test_control_flow_and_rules_of_jax() -> None:
    @jax.custom_vjp
    def rounded(x: jax.Array) -> jax.Array:
        return jnp.round(x)

    rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g * 10.0,))

    def f(x: jax.Array) -> jax.Array:
        scanned, _ = jax.lax.scan(lambda c, a: (jnp.sin(c * a), None), x[0], x)
        chosen = jax.lax.cond(x[0] > 0, lambda: x[1] ** 2, lambda: x[1])
        looped = (
            keras.ops.fori_loop(0, 3, lambda i, c: c * x[2], x[0]) if isinstance(x, RecordedArray) else x[0] * x[2] ** 3
        )
        norm = jnp.linalg.norm(jax.nn.gelu(x)) + jax.scipy.special.logsumexp(x) + jax.nn.relu(x)[1]
        return (
            scanned
            + chosen
            + jax.lax.stop_gradient(x[0]) * x[1]
            + rounded(x[2])
            + norm
            + jax.jit(jnp.prod)(x)
            + looped * 0
        )

    x = jnp.array([0.5, 1.2, -0.7])
    with stratagem.GradientTape() as tape:
        tape.watch(x)
        value = f(x)
    np.testing.assert_allclose(tape.gradient(value, x), jax.grad(f)(x), rtol=1e-5)


def test_values_are_known_inside_and_after() -> None:
    a = keras.Variable([1.0, 2.0])
    with stratagem.GradientTape(persistent=True) as tape:
        y = a * 2.0
        assert y[0] > 1.0
        assert (float(y[1]), f"{y[0]:.1f}", str(y), np.asarray(y).tolist()) == (4.0, "2.0", "[2. 4.]", [2.0, 4.0])
        assert [float(each) for each in y] == [2.0, 4.0]
    assert isinstance(y, jax.Array)
    assert y.tolist() == [2.0, 4.0]
    assert y.sharding.device_set == {jax.devices()[0]}
    assert not isinstance(y + 1.0, jax.core.Tracer)
    assert not isinstance(jax.jit(jnp.sum)(y), jax.core.Tracer)
    assert float(jax.jit(lambda: jnp.sum(y))()) == 6.0
    assert np.asarray(jax.device_put(y)).tolist() == [2.0, 4.0]
    assert np.asarray(tape.gradient(y, a)).tolist() == [2.0, 2.0]


def test_layers_between_and_parts_left_out() -> None:
    a, b = keras.Variable(2.0), keras.Variable(3.0)
    with stratagem.GradientTape(persistent=True) as tape:
        hidden = a * b
        with tape.stop_recording():
            constant = hidden * a
        loss = hidden**2 + constant * b
    assert not isinstance(constant, jax.core.Tracer)
    assert [float(g) for g in tape.gradient(loss, [hidden, a, b])] == [12.0, 36.0, 24.0 + 12.0]
    assert [v is w for v, w in zip(tape.watched_variables(), [a, b], strict=True)] == [True, True]
    assert tape.gradient(loss, keras.Variable(1.0)) is None


@pytest.mark.thorough
def test_two_networks_under_two_tapes() -> None:
    """Adversarial training: each tape for its own network, the second asked when both have ended."""
    keras.utils.set_random_seed(2)
    generator, critic = (
        keras.layers.Dense(3),
        keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]),
    )
    noise, real = X.reshape(6, -1)[:, :2], X.reshape(6, -1)[:, 2:5]
    with stratagem.GradientTape() as first, stratagem.GradientTape() as second:
        made = critic(generator(noise))
        of_generator = -keras.ops.mean(made)
        of_critic = keras.ops.mean(made) - keras.ops.mean(critic(real) ** 2)
    found = [*first.gradient(of_generator, generator.variables), *second.gradient(of_critic, critic.variables)]

    def generated(weights: Any) -> Any:
        return -keras.ops.mean(critic(generator.stateless_call(weights, [], noise)[0]))

    def criticised(weights: Any) -> Any:
        on = lambda x: critic.stateless_call(weights, [], x)[0]  # noqa: E731
        return keras.ops.mean(on(generator(noise))) - keras.ops.mean(on(real) ** 2)

    expected = [
        *jax.grad(generated)([v.value for v in generator.variables]),
        *jax.grad(criticised)([v.value for v in critic.variables]),
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_recurrent_layers_and_mixed_precision() -> None:
    keras.utils.set_random_seed(3)
    policy = keras.mixed_precision.DTypePolicy("mixed_bfloat16")
    model = keras.Sequential([keras.layers.SimpleRNN(3, dropout=0.2, seed=1), keras.layers.Dense(1, dtype=policy)])
    x = X[:, :, :3]
    with stratagem.GradientTape() as tape:
        loss = keras.ops.mean(keras.ops.cast(model(x, training=False), "float32") ** 2)
    found = tape.gradient(loss, model.trainable_variables)
    rest = [v.value for v in model.non_trainable_variables]

    def by_weights(weights: Any) -> Any:
        out = model.stateless_call(weights, rest, x, training=False)[0]
        return keras.ops.mean(keras.ops.cast(out, "float32") ** 2)

    expected = jax.grad(by_weights)([v.value for v in model.trainable_variables])
    assert [g.dtype for g in found] == [g.dtype for g in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-4)


def test_compiled_functions_under_a_tape() -> None:
    w, calls = keras.Variable([1.0, 2.0]), keras.Variable(0, dtype="int32", trainable=False)

    @stratagem.function
    def forward(x: Any) -> Any:
        calls.assign_add(1)
        return keras.ops.sum(w * w * x)

    for _ in range(2):
        with stratagem.GradientTape() as tape:
            loss = forward(jnp.array([1.0, 3.0]))
        np.testing.assert_array_equal(tape.gradient(loss, w), [2.0, 12.0])
    assert int(calls.value) == 2


def test_jacobians() -> None:
    x = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    weights = jnp.array([[1.0, 0.5], [2.0, 0.2], [3.0, 0.1]])

    def f(x: Any) -> Any:
        return jnp.tanh(x * x) @ weights

    with stratagem.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
        unrelated = jnp.ones(3)
    np.testing.assert_allclose(tape.jacobian(y, x), jax.jacobian(f)(x), rtol=1e-6)
    rows = jax.vmap(jax.jacobian(lambda row: f(row[None])[0]))(x)
    np.testing.assert_allclose(tape.batch_jacobian(y, x), rows, rtol=1e-6)
    assert tape.jacobian(y, unrelated) is None
    assert tape.jacobian(y, unrelated, unconnected_gradients="zero").shape == (2, 2, 3)
    with pytest.raises(InputError, match="the same number of rows"):
        tape.batch_jacobian(y, unrelated)


def test_what_was_recorded_goes_with_the_tape() -> None:
    a = keras.Variable(2.0)
    with stratagem.GradientTape() as tape:
        middle = a * a
        loss = middle * a
    gone = weakref.ref(concrete(middle))
    tape.gradient(loss, a)
    del middle
    gc.collect()
    assert gone() is None  # although `loss` lives
    with stratagem.GradientTape(persistent=True) as tape:
        middle = a * a
        loss = middle * a
    gone = weakref.ref(concrete(middle))
    del tape, middle
    gc.collect()
    assert gone() is None
    assert float(loss) == 8.0


def test_misuse() -> None:
    with stratagem.GradientTape() as tape, pytest.raises(InputError, match="convert_to_tensor"):
        tape.watch(X)
    with pytest.raises(UsageError, match="outside the tape"), tape.stop_recording():
        pass
