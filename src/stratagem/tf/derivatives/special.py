"""Functions of Bessel, Euler and Riemann, with TensorFlow's derivatives.

Source of the rules: tensorflow/python/ops/math_grad.py of TensorFlow 2.21.
"""

from __future__ import annotations

import math
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.tf.derivatives import numbers
from stratagem.tf.derivatives.rules import Function, ruled

ndtri: Final = ruled(jax.scipy.special.ndtri, lambda t, y, x: t * math.sqrt(2 * math.pi) * jnp.exp(jnp.square(y) / 2))
"""`Ndtri`: infinite at 0 and 1."""

_SLOPE: Final = 2 / math.sqrt(math.pi)

erf: Final = ruled(lax.erf, lambda t, y, x: t * _SLOPE * jnp.exp(-jnp.square(x)))
"""`Erf`. JAX 0.12 has 0 for the second derivative at infinity, TensorFlow NaN."""

erfc: Final = ruled(lax.erfc, lambda t, y, x: t * -_SLOPE * jnp.exp(-jnp.square(x)))
"""`Erfc`."""

bessel_i0: Final = ruled(jax.scipy.special.i0, lambda t, y, x: t * bessel_i1(x))
"""`BesselI0`."""

bessel_i0e: Final = ruled(jax.scipy.special.i0e, lambda t, y, x: t * (bessel_i1e(x) - numbers.sign(x) * y))
"""`BesselI0e`."""

bessel_i1: Final = ruled(jax.scipy.special.i1, lambda t, y, x: t * jnp.where(x == 0, 1, bessel_i0(x) - y / x))
"""`BesselI1`."""

bessel_i1e: Final = ruled(
    jax.scipy.special.i1e,
    lambda t, y, x: t * jnp.where(x == 0, 0.5, bessel_i0e(x) - y * (numbers.sign(x) + numbers.reciprocal(x))),
)
"""`BesselI1e`."""


def _expi(x: Any) -> Any:
    """TensorFlow's is of positive numbers that are finite."""
    return jnp.where((x > 0) & (x < jnp.inf), jax.scipy.special.expi(x), jnp.where(x == 0, -jnp.inf, jnp.nan))


expint: Final = ruled(_expi, lambda t, y, x: t * jnp.exp(x) / x)
"""`Expint`."""

spence: Final = ruled(jax.scipy.special.spence, lambda t, y, x: t * jnp.where(x == 1, -1, jnp.log(x) / (1 - x)))
"""`Spence`."""


def _log_space(a: Any, x: Any) -> Any:
    return jnp.exp(-x + (a - 1) * jnp.log(x) - lax.lgamma(a))


def _positive(compute: Function) -> Function:
    """JAX has a limit where TensorFlow has NaN: at an order that is not positive."""
    return lambda a, x: jnp.where(a > 0, compute(a, x), jnp.nan)


igamma: Final = ruled(
    _positive(jax.scipy.special.gammainc),
    lambda t, z, a, x: t * lax.igamma_grad_a(*jnp.broadcast_arrays(a, x)),
    lambda t, z, a, x: t * _log_space(a, x),
)
"""`Igamma`."""

igammac: Final = ruled(
    _positive(jax.scipy.special.gammaincc),
    lambda t, z, a, x: -t * lax.igamma_grad_a(*jnp.broadcast_arrays(a, x)),
    lambda t, z, a, x: -t * _log_space(a, x),
)
"""`Igammac`."""


def _betainc_slope(a: Any, b: Any, x: Any) -> Any:
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    return jnp.exp(numbers.xlog1py(b - 1, -x) + numbers.xlogy(a - 1, x) - log_beta)


betainc: Final = ruled(jax.scipy.special.betainc, None, None, lambda t, z, a, b, x: t * _betainc_slope(a, b, x))
"""`Betainc`: by x alone."""


def _zeta(x: Any, q: Any) -> Any:
    """JAX's series ends in NaN at infinity, where it is 0."""
    return jnp.where((q == jnp.inf) & (x > 1), 0, jax.scipy.special.zeta(x, q))


zeta: Final = ruled(_zeta, None, lambda t, z, x, q: t * -x * zeta(x + 1, q))
"""`Zeta`: by q alone."""


def _polygamma(n: Any, x: Any) -> Any:
    """`Polygamma`'s kernel: NaN unless the order is a whole number from 0; a zeta function otherwise."""
    order = jnp.asarray(n, jnp.result_type(x))
    series = jnp.exp(lax.lgamma(order + 1)) * _zeta(order + 1, x)
    series = jnp.where(order % 2 == 0, -series, series)
    return jnp.where((order < 0) | (order != jnp.floor(order)), jnp.nan, jnp.where(order == 0, _digamma(x), series))


def _digamma(x: Any) -> Any:
    """Return NaN at 0, where JAX 0.12 has minus infinity."""
    return jnp.where(x == 0, jnp.nan, lax.digamma(x))


polygamma: Final = ruled(_polygamma, None, lambda t, z, n, x: t * polygamma(n + 1, x))
"""`Polygamma`: by x alone."""

digamma: Final = ruled(_digamma, lambda t, y, x: t * polygamma(jnp.ones_like(y), x))
"""`Digamma`: 0 at infinity."""

lgamma: Final = ruled(lax.lgamma, lambda t, y, x: t * digamma(x))
"""`Lgamma`."""
