"""Loops whose length is computed: their states, and gradients as those of the loop whose length is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.program.computed_loop import computed_loop


def loss(w: Any, x: Any, n: Any, most: int | None = None) -> Any:
    place = jnp.argmax(w)  # closed over, and no number that has a gradient

    def turn(state: Any) -> Any:
        i, y = state
        return i + 1, jnp.sin(y * w + 0.01 * i) + 0.1 * w[place]

    return jnp.sum(computed_loop(lambda state: state[0] < n, turn, (jnp.int32(0), x), most)[1] ** 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("turns", [0, 1, 2, 32, 33, 1025])
def test_gradients_are_those_of_a_loop_of_known_length(turns: int) -> None:
    w, x = jnp.array([0.3, 0.9]), jnp.array([1.0, 0.5])
    found = jax.jit(jax.value_and_grad(loss, (0, 1)))(w, x, turns)
    known = jax.jit(jax.value_and_grad(lambda w, x: loss(w, x, turns, most=turns), (0, 1)))(w, x)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def test_a_loop_in_a_loop_has_gradients() -> None:
    def power(x: Any, n: Any) -> Any:
        def outer(state: Any) -> Any:
            inner = computed_loop(lambda s: s[0] < state[0], lambda s: (s[0] + 1, s[1] * x), (jnp.int32(0), state[1]))
            return state[0] + 1, inner[1]

        return computed_loop(lambda state: state[0] < n, outer, (jnp.int32(0), jnp.float32(1.0)))[1]

    value, slope = jax.jit(jax.value_and_grad(power))(1.1, 5)  # x ** (0 + 1 + 2 + 3 + 4)
    np.testing.assert_allclose([value, slope], [1.1**10, 10 * 1.1**9], rtol=1e-5)
