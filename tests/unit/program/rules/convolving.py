"""Helpers for tests of rules of convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stratagem.program.rules.cpu import suited_to_cpu

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
NWC = ("NWC", "WIO", "NWC")


def numbers(*shape: int, dtype: str = "float32") -> jax.Array:
    """Return random numbers, the same for the same shape."""
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def conv(images: jax.Array, kernel: jax.Array, **how: Any) -> jax.Array:
    """Return a convolution; of strides 1 and the same size, in NHWC, where nothing else is said."""
    settings = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC, **how}
    return lax.conv_general_dilated(images, kernel, **settings)


def transposed(images: jax.Array, kernel: jax.Array, **how: Any) -> jax.Array:
    """Return a transposed convolution; of strides 2 and the same padding, in NHWC, where nothing else is said."""
    settings = {"strides": (2, 2), "padding": "SAME", "dimension_numbers": NHWC, **how}
    return lax.conv_transpose(images, kernel, **settings)


def with_gradients(function: Any) -> Any:
    """Return a function of images and kernel for the result, and both gradients of its product with random numbers."""

    def all_three(images: jax.Array, kernel: jax.Array) -> Any:
        result, back = jax.vjp(function, images, kernel)
        return result, *back(numbers(*result.shape, dtype=result.dtype.name))

    return all_three


def assert_same_numbers(function: Any, images: jax.Array, kernel: jax.Array) -> None:
    """Compare the result and both gradients with those of float64 without a rule, at a rounding of float32."""
    got = jax.jit(suited_to_cpu(with_gradients(function)))(images, kernel)
    with jax.enable_x64(True):
        exact = jax.jit(with_gradients(function))(images.astype("float64"), kernel.astype("float64"))
    for mine, want in zip(got, exact, strict=True):
        assert mine.dtype == images.dtype
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=3e-6 * np.abs(want).max())


def equations(function: Any, *args: jax.Array) -> list[Any]:
    """Return the equations of the convolutions that XLA is given for a function."""
    program = jax.make_jaxpr(suited_to_cpu(function))(*args)
    found: list[Any] = []

    def look(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            if eqn.primitive is lax.conv_general_dilated_p:
                found.append(eqn)
            for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
                if hasattr(inner, "eqns"):
                    look(inner)
                elif hasattr(inner, "jaxpr"):
                    look(inner.jaxpr)

    look(program.jaxpr)
    return found


def convolutions(function: Any, *args: jax.Array) -> list[dict[str, Any]]:
    """Return the parameters of the convolutions that XLA is given for a function."""
    return [eqn.params for eqn in equations(function, *args)]
