"""Random bits for the CPU: JAX's own numbers, in a program without JAX's loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.program.rules.cpu import suited_to_cpu

KEY = jax.random.PRNGKey(7)


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def asks_jax_for_bits(function: Callable[..., Any], *args: Any) -> bool:
    return "random_bits[" in str(jax.make_jaxpr(suited_to_cpu(function))(*args))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (7,), (3, 5), (2, 3, 4, 5), (1001,), (70_001,)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_of_any_shape_and_width_are_those_of_jax(shape: tuple[int, ...], dtype: str) -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bits(key, shape, dtype)

    assert bits(jax.jit(suited_to_cpu(draw))(KEY)) == bits(jax.jit(draw)(KEY))
    assert not asks_jax_for_bits(draw, KEY)


def test_bits_of_long_numbers_are_those_of_jax() -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bits(key, (5, 3), jnp.uint64)

    old: Any = jax.experimental  # before JAX 0.8
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else old.enable_x64():
        key = jax.random.PRNGKey(7)
        assert bits(jax.jit(suited_to_cpu(draw))(key)) == bits(jax.jit(draw)(key))
        assert not asks_jax_for_bits(draw, key)


DRAWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "normal": lambda key: jax.random.normal(key, (33, 5)),
    "bfloat16": lambda key: jax.random.uniform(key, (33,), jnp.bfloat16, -1, 1),
    "truncated": lambda key: jax.random.truncated_normal(key, -2.0, 2.0, (65,)),
    "whole numbers": lambda key: jax.random.randint(key, (100,), -3, 11),
    "categories": lambda key: jax.random.categorical(key, jnp.linspace(0, 1, 20).reshape(4, 5)),
    "order": lambda key: jax.random.permutation(key, 100),
    "nothing": lambda key: jax.random.uniform(key, (0, 3)),
    "in a loop": lambda key: jax.lax.fori_loop(
        0, 3, lambda i, x: x + jax.random.uniform(jax.random.fold_in(key, i), x.shape), jnp.zeros(9)
    ),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_what_is_drawn_with_them_has_the_same_bits(draw: Callable[[jax.Array], jax.Array]) -> None:
    assert bits(jax.jit(suited_to_cpu(draw))(KEY)) == bits(jax.jit(draw)(KEY))


@pytest.mark.parametrize("mask", [(4, 6, 8), (4, 1, 8), (4, 1, 1)])
def test_dropout_and_its_gradient_have_the_same_bits(mask: tuple[int, ...]) -> None:
    def step(x: jax.Array, key: jax.Array) -> Any:
        def dropped(x: jax.Array) -> jax.Array:
            kept = jnp.broadcast_to(jax.random.bernoulli(key, 0.7, mask), x.shape)
            return jnp.where(kept, x / 0.7, 0)

        y, pull = jax.vjp(dropped, x)
        return y, pull(y)[0]

    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6, 8)), jnp.float32)
    for mine, want in zip(jax.jit(suited_to_cpu(step))(x, KEY), jax.jit(step)(x, KEY), strict=True):
        assert bits(mine) == bits(want)


def test_bits_of_other_generators_and_of_many_keys_at_once_are_left_to_jax() -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.bits(key, (3,))

    assert asks_jax_for_bits(draw, jax.random.key(7, impl="rbg"))
    assert asks_jax_for_bits(jax.vmap(draw), jax.random.split(jax.random.key(7)))
    with jax.threefry_partitionable(False):
        assert asks_jax_for_bits(draw, KEY)
