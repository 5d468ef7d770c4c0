"""Operations of a traced step, beside those that XLA counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from stratagem.plan.arithmetic import flops

IMAGES = jnp.ones((2, 12, 12, 6))


def convolved(x: jax.Array, kernel: jax.Array, **options: Any) -> jax.Array:
    options = {"padding": "VALID", **options}
    return lax.conv_general_dilated(x, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda a, b: a @ b, (jnp.ones((7, 5)), jnp.ones((5, 11)))),
        (lambda a, b: jnp.einsum("bhqd,bhkd->bhqk", a, b), (jnp.ones((2, 3, 4, 8)), jnp.ones((2, 3, 5, 8)))),
        (lambda x, k: convolved(x, k, window_strides=(1, 1)), (IMAGES, jnp.ones((3, 3, 6, 10)))),
        (lambda x, k: convolved(x, k, window_strides=(2, 2)), (IMAGES, jnp.ones((3, 3, 6, 10)))),
        (
            lambda x, k: convolved(x, k, window_strides=(1, 1), feature_group_count=6),
            (IMAGES, jnp.ones((3, 3, 1, 12))),
        ),
    ],
    ids=["product", "attention", "convolution", "strided", "depthwise"],
)
def test_products_and_convolutions_are_those_of_xla(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # XLA's own count leaves nothing out here: neither padding nor anything but products.
    expected: Any = jax.jit(function).lower(*arguments).cost_analysis()
    assert flops(jax.make_jaxpr(function)(*arguments)).total() == expected["flops"]


def test_a_loop_counts_as_often_as_it_turns_and_a_branch_as_the_longest() -> None:
    weights = jnp.ones((4, 4), jnp.bfloat16)

    def looped(x: jax.Array) -> jax.Array:
        return lax.scan(lambda carry, _: (carry @ weights, None), x, length=10)[0]

    def branched(x: jax.Array) -> jax.Array:
        return lax.cond(x[0, 0] > 0, lambda: x @ weights @ weights, lambda: x @ weights)

    one = 2 * 3 * 4 * 4
    x = jnp.ones((3, 4), jnp.bfloat16)
    assert flops(jax.make_jaxpr(looped)(x)) == {"bfloat16": 10 * one}
    assert flops(jax.make_jaxpr(branched)(x)) == {"bfloat16": 2 * one}


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3, 6, 10), {"window_strides": (1, 1)}),
        ((3, 3, 6, 10), {"window_strides": (2, 2)}),
        ((3, 3, 1, 12), {"window_strides": (1, 1), "feature_group_count": 6}),
        ((3, 3, 6, 10), {"window_strides": (1, 1), "lhs_dilation": (2, 2), "padding": [(2, 2), (2, 2)]}),
        ((3, 3, 6, 10), {"window_strides": (1, 1), "rhs_dilation": (2, 2)}),
    ],
    ids=["plain", "strided", "depthwise", "transposed", "dilated"],
)
def test_a_backward_pass_of_convolutions_is_counted_near_xlas(kernel: tuple[int, ...], options: dict[str, Any]) -> None:
    def loss(kernel: jax.Array, x: jax.Array) -> jax.Array:
        return (convolved(x, kernel, **options) ** 2).sum()

    backward = jax.grad(loss, argnums=(0, 1))
    arguments = (jnp.ones(kernel), IMAGES)
    expected: Any = jax.jit(backward).lower(*arguments).cost_analysis()
    # Ours counts products with the zeros round an image, which XLA leaves out; XLA's counts additions of the loss too.
    assert expected["flops"] <= flops(jax.make_jaxpr(backward)(*arguments)).total() <= 1.6 * expected["flops"]
