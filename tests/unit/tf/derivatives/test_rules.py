"""Rules of derivatives: values from JAX, derivatives from the rules, at any order and under transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.tf import derivatives
from stratagem.tf.derivatives.rules import constant, no_change_times, ruled, where


def test_a_rule_replaces_the_derivative_and_not_the_value() -> None:
    function = ruled(lambda x, y: x * y, lambda t, z, x, y: 10 * t, None)
    assert function(2.0, 3.0) == 6.0
    assert jax.grad(function)(2.0, 3.0) == 10.0
    assert jax.grad(function, 1)(2.0, 3.0) == 0.0
    assert jax.jvp(function, (2.0, 3.0), (1.0, 1.0))[1] == 10.0


def test_whole_and_complex_numbers_pass_the_rules() -> None:
    function = ruled(jnp.square, lambda t, y, x: jnp.full_like(t, 7))
    assert function(jnp.asarray(3)).dtype == jnp.int32
    assert jax.grad(lambda x: jnp.real(function(x + 0j)))(3.0) == 6.0


def test_derivatives_of_what_was_broadcast_are_summed() -> None:
    found = jax.grad(lambda low: derivatives.maximum(jnp.ones((2, 3)), low).sum())(jnp.asarray(2.0))
    assert found == 6.0
    np.testing.assert_array_equal(jax.vmap(jax.grad(derivatives.relu))(jnp.asarray([-1.0, 0.0, 2.0])), [0, 0, 1])


@pytest.mark.parametrize(
    ("function", "at", "expected"),
    [
        (derivatives.absolute, 0.0, 0.0),
        (derivatives.relu, 0.0, 0.0),
        (derivatives.relu6, 6.0, 0.0),
        (derivatives.leaky_relu, 0.0, 0.2),
        (derivatives.elu, 0.0, 1.0),
        (derivatives.sqrt, 4.0, 0.25),
        (derivatives.sign, 2.0, 0.0),
        (derivatives.softsign, -np.inf, 0.0),
        (lambda x: derivatives.maximum(x, 1.0), 1.0, 1.0),
        (lambda x: derivatives.maximum(1.0, x), 1.0, 0.0),
        (lambda x: derivatives.minimum(x, 1.0), 1.0, 1.0),
        (lambda x: derivatives.clip_by_value(x, 0.0, 1.0), 1.0, 1.0),
        (lambda x: derivatives.divide_no_nan(1.0, x), 0.0, 0.0),
        (lambda x: derivatives.power(x, 3.0), -2.0, 12.0),
        (lambda x: derivatives.xlogy(x, 0.0), 0.0, 0.0),
    ],
)
def test_derivatives_at_kinks(function: derivatives.Function, at: float, expected: float) -> None:
    assert jax.grad(function)(jnp.asarray(at)) == pytest.approx(expected)


def test_second_derivatives_follow_from_the_rules() -> None:
    assert jax.grad(jax.grad(derivatives.reciprocal))(2.0) == pytest.approx(0.25)
    assert jax.grad(jax.grad(derivatives.divide, 1), 1)(1.0, 2.0) == pytest.approx(0.25)


def test_no_change_stays_none_beside_an_infinite_slope() -> None:
    np.testing.assert_array_equal(no_change_times(jnp.zeros(2), jnp.asarray([np.inf, np.nan])), [0, 0])
    assert no_change_times(jnp.ones(()), jnp.asarray(np.inf)) == np.inf
    assert jnp.isnan(no_change_times(jnp.ones(()), jnp.asarray(np.nan)))
    assert where(jnp.asarray(False), jnp.asarray(np.inf)) == 0


def test_a_constant_is_another_array_without_a_derivative() -> None:
    x = jnp.ones(2)
    assert constant(x) is not x
    np.testing.assert_array_equal(jax.grad(lambda y: (y * constant(y)).sum())(x), [1, 1])


def test_products_of_zeros_have_the_derivative_of_the_other_factors() -> None:
    x = jnp.asarray([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    np.testing.assert_array_equal(jax.grad(lambda y: derivatives.prod(y, 1).sum())(x), [[0, 6, 0], [0, 0, 0]])


def test_the_greatest_rows_of_a_segment_share_its_derivative() -> None:
    of_segments = derivatives.segments("max", 2)
    ids = jnp.asarray([0, 0, 1])
    np.testing.assert_array_equal(of_segments(jnp.asarray([5.0, 5.0, 1.0]), ids), [5, 1])
    found = jax.grad(lambda rows: of_segments(rows, ids).sum())(jnp.asarray([5.0, 5.0, 1.0]))
    np.testing.assert_array_equal(found, [0.5, 0.5, 1])


def test_functions_of_numpy_have_the_rules() -> None:
    assert derivatives.OF_NUMPY["arccos"] is derivatives.acos
    assert {name for name in derivatives.OF_NUMPY if not hasattr(jnp, name)} == set()
