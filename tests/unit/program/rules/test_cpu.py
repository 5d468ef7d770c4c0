"""Programs for the CPU: slow equations are replaced in every program of a strategy, and in no other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import stratagem
from stratagem.core.environment import XLA_AS_IS
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.program.compile import compiled
from stratagem.program.rules.cpu import suited_to_cpu

SLOW = "select_and_scatter"


def pooled(x: jax.Array, window: tuple[int, ...], strides: tuple[int, ...], padding: str) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def gradient(x: jax.Array, source: jax.Array, *how: Any) -> jax.Array:
    """Return what JAX makes of the gradient of pooling."""
    return jax.vjp(lambda x: pooled(x, *how), x)[1](source)[0]


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def numbers(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


HOW = (1, 2, 2, 1), (1, 2, 2, 1), "VALID"


def in_a_function(x: jax.Array, source: jax.Array) -> jax.Array:
    return jax.jit(gradient, static_argnums=(2, 3, 4))(x, source, *HOW)


def in_a_loop(x: jax.Array, source: jax.Array) -> jax.Array:
    return lax.scan(lambda x, _: (x + gradient(x, source, *HOW), None), x, length=3)[0]


def in_a_branch(x: jax.Array, source: jax.Array) -> jax.Array:
    return lax.cond(x[0, 0, 0, 0] > 0, lambda: gradient(x, source, *HOW), lambda: 2 * gradient(x, source, *HOW))


def through_remat(x: jax.Array, source: jax.Array) -> jax.Array:
    pool = jax.checkpoint(lambda x: jnp.sin(pooled(jnp.sin(x), *HOW)))
    return jax.vjp(pool, x)[1](source)[0]


@pytest.mark.parametrize("function", [in_a_function, in_a_loop, in_a_branch, through_remat])
def test_programs_inside_programs_are_changed(function: Any) -> None:
    x, source = numbers(2, 6, 8, 3), numbers(2, 3, 4, 3)
    quick = jax.jit(suited_to_cpu(function))
    assert SLOW in jax.jit(function).lower(x, source).as_text()
    assert SLOW not in quick.lower(x, source).as_text()
    assert bits(quick(x, source)) == bits(jax.jit(function)(x, source))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.grad(lambda x: pooled(x, (1, 3, 1), (1, 2, 1), "VALID").sum())(x.astype("bfloat16")),
        lambda x: jax.grad(lambda x: pooled(x, (1, 65, 1), (1, 65, 1), "VALID").sum())(x),
        lambda x: jax.grad(lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2, 1), (1, 2, 1), "VALID").sum())(x),
    ],
    ids=["sums of short floats", "large window", "minimum"],
)
def test_what_has_other_bits_or_gains_nothing_is_left_to_xla(function: Any) -> None:
    assert SLOW in jax.jit(suited_to_cpu(function)).lower(jnp.zeros((2, 130, 3))).as_text()


def test_a_program_with_nothing_to_change_keeps_its_functions() -> None:
    def twice(x: jax.Array) -> jax.Array:
        inner = jax.jit(jnp.sin)
        return inner(inner(x))

    assert str(jax.make_jaxpr(suited_to_cpu(twice))(1.0)) == str(jax.make_jaxpr(twice)(1.0))


def test_only_programs_of_a_strategy_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, source = jnp.ones((2, 6, 8, 3)), jnp.ones((2, 3, 4, 3))

    def step(x: jax.Array, source: jax.Array) -> jax.Array:
        return gradient(x, source, *HOW)

    def text() -> str:
        whole = PartitionSpec()
        program = compiled(ReplicaMesh(jax.devices()[:1]), step, (whole, whole), whole, name="step")
        return jax.jit(program).lower(x, source).as_text()

    assert SLOW not in text()
    assert SLOW in jax.jit(step).lower(x, source).as_text()
    monkeypatch.setenv(XLA_AS_IS, "1")
    assert SLOW in text()


def trained(strategy: stratagem.Strategy, steps_per_execution: int = 1) -> list[np.ndarray]:
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv2D(4, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Conv2D(4, 3, activation="relu"),
                keras.layers.MaxPooling2D(3, strides=2, padding="same"),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, steps_per_execution=steps_per_execution)
    rng = np.random.default_rng(0)
    images, labels = np.round(rng.random((20, 13, 13, 1), np.float32), 1), rng.integers(0, 3, 20)
    model.fit(images, labels, batch_size=8, epochs=2, verbose=0)
    return model.get_weights()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("steps_per_execution", "replicas"),
    [*(pytest.param(*case, marks=pytest.mark.thorough) for case in [(1, 1), (1, 2), (2, 1)]), (2, 2)],
)
def test_fit_gives_the_same_weights_without_it(
    replicas: int, steps_per_execution: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    quick = trained(strategy, steps_per_execution)
    monkeypatch.setenv(XLA_AS_IS, "1")
    slow = trained(strategy)  # one step at a time: in loops XLA computes convolutions in another way
    assert [bits(value) for value in quick] == [bits(value) for value in slow]


def test_structures_are_kept() -> None:
    program = suited_to_cpu(lambda tree, y: {"sum": 2 * (tree["x"] + y), "both": (2 * y, tree["x"])})
    assert jax.tree.map(float, program({"x": 1.0}, 2.0)) == {"sum": 6.0, "both": (4.0, 1.0)}
