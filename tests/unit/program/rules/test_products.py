"""Products that sum over several axes: the numbers of XLA's, in one product of matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.unit.program.rules.convolving import numbers

from stratagem.program.rules.cpu import suited_to_cpu

Axes = tuple[tuple[int, ...], tuple[int, ...]]


def summed_over(function: Any, *args: jax.Array) -> list[Axes]:
    """Return the axes that each product of a program sums over."""
    equations = jax.make_jaxpr(suited_to_cpu(function))(*args).jaxpr.eqns
    return [eqn.params["dimension_numbers"][0] for eqn in equations if eqn.primitive is lax.dot_general_p]


def dense(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.matmul(x, kernel)


@pytest.mark.parametrize("shape", [(2, 5, 4), (3, 2, 5, 4), (0, 5, 4)])
def test_the_gradient_of_a_dense_kernel_is_one_product(shape: tuple[int, ...]) -> None:
    x, kernel = numbers(*shape), numbers(4, 3)

    def gradient(x: jax.Array, kernel: jax.Array) -> jax.Array:
        result, back = jax.vjp(lambda kernel: dense(x, kernel), kernel)
        return back(jnp.cos(result))[0]

    got = jax.jit(suited_to_cpu(gradient))(x, kernel)
    rows, want = np.float64(x).reshape(-1, 4), np.float64(kernel)
    np.testing.assert_allclose(got, rows.T @ np.cos(rows @ want), rtol=1e-5, atol=1e-5)
    assert summed_over(gradient, x, kernel)[-1] == ((0,), (0,))


@pytest.mark.parametrize(
    ("left", "right", "axes", "left_to_xla"),
    [
        ((2, 3, 4), (2, 3, 5), (((0, 1), (0, 1)), ((), ())), False),
        ((4, 2, 3), (5, 2, 3), (((1, 2), (1, 2)), ((), ())), False),
        ((4, 2, 3), (2, 3, 5), (((1, 2), (0, 1)), ((), ())), False),
        ((2, 3, 4), (3, 2, 5), (((0, 1), (1, 0)), ((), ())), True),
        ((2, 4, 3), (2, 3, 5), (((0, 2), (0, 1)), ((), ())), True),
        ((2, 3, 4), (2, 5, 4), (((2,), (2,)), ((0,), (0,))), True),
        ((2, 3, 6, 4), (2, 3, 6, 4), (((1, 2), (1, 2)), ((0,), (0,))), True),
    ],
)
def test_only_neighbours_in_one_order_become_one(left: Any, right: Any, axes: Any, left_to_xla: bool) -> None:
    x, y = numbers(*left), numbers(*right)

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.dot_general(x, y, axes)

    got, want = jax.jit(suited_to_cpu(product))(x, y), product(x.astype("float32"), y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert got.shape == want.shape
    assert (summed_over(product, x, y) == [axes[0]]) == left_to_xla


def test_precision_and_type_of_the_result_are_kept() -> None:
    x, y = numbers(2, 3, 4, dtype="bfloat16"), numbers(2, 3, 5, dtype="bfloat16")

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        over = (((0, 1), (0, 1)), ((), ()))
        return lax.dot_general(x, y, over, precision="highest", preferred_element_type="float32")

    (eqn,) = (
        each for each in jax.make_jaxpr(suited_to_cpu(product))(x, y).jaxpr.eqns if each.primitive is lax.dot_general_p
    )
    assert eqn.params["dimension_numbers"][0] == ((0,), (0,))
    assert eqn.params["preferred_element_type"] == "float32"
    assert eqn.params["precision"] == (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
