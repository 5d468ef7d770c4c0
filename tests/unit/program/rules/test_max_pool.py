"""Gradients of max-pooling for the CPU: XLA's own bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from stratagem.program.rules.max_pool import max_pool_gradient


def pooled(x: jax.Array, window: tuple[int, ...], strides: tuple[int, ...], padding: str) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def gradient(x: jax.Array, source: jax.Array, *how: Any) -> jax.Array:
    """Return what JAX makes of the gradient of pooling."""
    return jax.vjp(lambda x: pooled(x, *how), x)[1](source)[0]


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def numbers(kind: str, shape: tuple[int, ...], dtype: str) -> jax.Array:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape)
    match kind:
        case "ties":
            values = np.round(values)  # with zeros of both signs
        case "NaN":
            values = np.where(rng.random(shape) < 0.3, np.nan, np.round(values))
        case "infinite":
            values = np.where(rng.random(shape) < 0.8, -np.inf, np.round(values))
    return jnp.asarray(values, dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["distinct", "ties", "NaN", "infinite"])
@pytest.mark.parametrize(
    ("shape", "window", "strides", "padding"),
    [
        ((2, 6, 8, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        ((2, 7, 5, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        ((2, 7, 5, 3), (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
        ((2, 3, 7, 5), (1, 1, 3, 2), (1, 1, 3, 2), "SAME"),
        ((2, 8, 9, 3), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        ((2, 8, 9, 3), (1, 3, 3, 1), (1, 2, 2, 1), "VALID"),
        ((2, 6, 6, 3), (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
        ((2, 9, 9, 3), (1, 2, 2, 1), (1, 3, 3, 1), "VALID"),
        ((3, 11, 2), (1, 4, 1), (1, 4, 1), "SAME"),
        ((1, 4, 5, 6, 2), (1, 2, 2, 2, 1), (1, 2, 2, 2, 1), "SAME"),
    ],
)
def test_the_gradient_has_the_bits_of_xla(
    shape: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], padding: str, kind: str
) -> None:
    overlapping = any(size > stride for size, stride in zip(window, strides, strict=True))
    for dtype in ["float32"] if overlapping else ["float32", "bfloat16"]:
        x = numbers(kind, shape, dtype)
        source = numbers("distinct", pooled(x, window, strides, padding).shape, dtype).at[..., 0].multiply(-0.0)
        want = jax.jit(gradient, static_argnums=(2, 3, 4))(x, source, window, strides, padding)
        pads = lax.padtype_to_pads(shape, window, strides, padding)
        got = jax.jit(max_pool_gradient, static_argnums=(2, 3, 4))(source, x, window, strides, tuple(pads))
        assert np.count_nonzero(np.asarray(want)) > 0
        assert bits(got) == bits(want)
