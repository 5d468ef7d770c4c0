"""Convolutions of small images: the numbers of XLA's convolution, and its gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from stratagem.program.rules.cpu import suited_to_cpu

SLOW = "stablehlo.convolution"
NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def numbers(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), jnp.float32)


def conv(images: jax.Array, kernel: jax.Array, **how: Any) -> jax.Array:
    settings = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": NHWC, **how}
    return lax.conv_general_dilated(images, kernel, **settings)


@pytest.mark.parametrize(
    ("images", "kernel", "how"),
    [
        ((3, 2, 2, 5), (3, 3, 5, 4), {}),
        ((3, 1, 1, 5), (3, 3, 5, 4), {}),
        ((3, 2, 4, 5), (3, 5, 5, 4), {"window_strides": (2, 1)}),
        ((3, 5, 2, 2), (4, 5, 3, 3), {"dimension_numbers": NCHW}),
        ((3, 2, 2, 5), (3, 3, 5, 4), {"lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2))}),
        ((3, 2, 2, 5), (3, 3, 5, 4), {"rhs_dilation": (2, 2), "padding": ((2, 2), (3, 2))}),
        ((3, 4, 2, 5), (3, 3, 5, 4), {"padding": ((-1, 1), (1, 1))}),
        (
            (3, 2, 5),
            (3, 5, 4),
            {"window_strides": (1,), "padding": "SAME", "dimension_numbers": ("NWC", "WIO", "NWC")},
        ),
    ],
)
def test_a_convolution_of_small_images_is_a_product(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    function = functools.partial(conv, **how)
    x, w = numbers(*images), numbers(*kernel)
    quick = jax.jit(suited_to_cpu(function))
    assert SLOW in jax.jit(function).lower(x, w).as_text()
    assert SLOW not in quick.lower(x, w).as_text()
    want = np.asarray(jax.jit(function)(x, w))
    assert np.abs(want).max() > 1
    np.testing.assert_allclose(quick(x, w), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_gradients_are_the_same(strides: tuple[int, int]) -> None:
    size = 2 * strides[0]
    x, w = numbers(3, size, size, 5), numbers(3, 3, 5, 4)

    def gradients(x: jax.Array, w: jax.Array) -> Any:
        return jax.grad(lambda x, w: jnp.sin(conv(x, w, window_strides=strides)).sum(), argnums=(0, 1))(x, w)

    quick = jax.jit(suited_to_cpu(gradients))
    convolutions = jax.jit(gradients).lower(x, w).as_text().count(SLOW)
    assert quick.lower(x, w).as_text().count(SLOW) < convolutions
    for got, want in zip(quick(x, w), jax.jit(gradients)(x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("images", "kernel", "how"),
    [
        ((3, 3, 3, 5), (3, 3, 5, 4), {}),
        ((3, 2, 2, 6), (3, 3, 3, 4), {"feature_group_count": 2}),
        ((4, 2, 2, 5), (3, 3, 5, 4), {"batch_group_count": 2}),
        ((3, 8, 8, 5), (9, 9, 5, 4), {}),
    ],
    ids=["as large as the window", "groups of channels", "groups of rows", "large window"],
)
def test_other_convolutions_are_left_to_xla(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    function = suited_to_cpu(functools.partial(conv, **how))
    assert SLOW in jax.jit(function).lower(numbers(*images), numbers(*kernel)).as_text()


def test_short_floats_are_left_to_xla() -> None:
    x, w = numbers(3, 2, 2, 5).astype("bfloat16"), numbers(3, 3, 5, 4).astype("bfloat16")
    assert SLOW in jax.jit(suited_to_cpu(conv)).lower(x, w).as_text()
