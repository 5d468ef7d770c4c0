"""Elementary functions of one number and of two, with TensorFlow's derivatives.

Each docstring names TensorFlow's operation. Source of the rules: tensorflow/python/ops/math_grad.py and nn_grad.py
(`@ops.RegisterGradient`), core/kernels/cwise_ops_gradients.h, of TensorFlow 2.21.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

from stratagem.tf.derivatives.rules import Function, Rule, constant, no_change_times, ruled, where

absolute: Final = ruled(jnp.abs, lambda t, y, x: t * jnp.sign(x))
"""`Abs`: 0 at 0, NaN at NaN."""

sign: Final = ruled(jnp.sign, lambda t, y, x: where(jnp.zeros_like(y, bool), t))
"""`Sign`: 0 everywhere, not None."""

relu: Final = ruled(lambda x: jnp.maximum(x, 0), lambda t, y, x: where(y > 0, t))
"""`Relu`: 0 at 0 and at NaN."""

relu6: Final = ruled(lambda x: jnp.minimum(jnp.maximum(x, 0), 6), lambda t, y, x: where((y > 0) & (y < 6), t))
"""`Relu6`: 0 at 0 and at 6."""

softsign: Final = ruled(jax.nn.soft_sign, lambda t, y, x: t / jnp.square(1 + absolute(x)))
"""`Softsign`: 0 at infinity."""

sqrt: Final = ruled(jnp.sqrt, lambda t, y, x: no_change_times(t, 0.5 / y))
"""`SqrtGrad` looks at the change: none stays none, also at 0 and where the root is NaN."""

rsqrt: Final = ruled(lax.rsqrt, lambda t, y, x: no_change_times(t, -0.5 * y * y * y))
"""`RsqrtGrad`: the same."""

reciprocal: Final = ruled(jnp.reciprocal, lambda t, y, x: no_change_times(t, -y * y))
"""`ReciprocalGrad`: the same."""

log: Final = ruled(jnp.log, lambda t, y, x: t * reciprocal(x))
"""`Log`."""

log1p: Final = ruled(jnp.log1p, lambda t, y, x: t * reciprocal(1 + x))
"""`Log1p`."""

tan: Final = ruled(jnp.tan, lambda t, y, x: t * jnp.square(reciprocal(jnp.cos(x))))
"""`Tan`."""

asin: Final = ruled(jnp.arcsin, lambda t, y, x: t * reciprocal(sqrt(1 - jnp.square(x))))
"""`Asin`."""

acos: Final = ruled(jnp.arccos, lambda t, y, x: -t * reciprocal(sqrt(1 - jnp.square(x))))
"""`Acos`."""

atan: Final = ruled(jnp.arctan, lambda t, y, x: t * reciprocal(1 + jnp.square(x)))
"""`Atan`."""

acosh: Final = ruled(jnp.arccosh, lambda t, y, x: t / jnp.sinh(y), of_complex=True)
"""`Acosh`: of the result, so that it is NaN below 1, and of complex numbers on the branch of the result."""

atanh: Final = ruled(jnp.arctanh, lambda t, y, x: t * reciprocal(1 - jnp.square(x)))
"""`Atanh`: its second derivative is infinite at 1."""


def leaky_relu_rules(alpha: float) -> tuple[Rule, ...]:
    """Return the rules of `leaky_relu`."""
    return (lambda t, y, x, *_: t * jnp.where(x > 0, 1, alpha).astype(y.dtype),)


@functools.cache
def _leaky_relu(alpha: float) -> Function:
    return ruled(lambda x: jax.nn.leaky_relu(x, alpha), *leaky_relu_rules(alpha))


def leaky_relu(x: Any, alpha: float = 0.2) -> Any:
    """Return x, and alpha * x where it is negative. `LeakyRelu`: alpha at 0."""
    return _leaky_relu(float(alpha))(x)


def elu_rules(alpha: float) -> tuple[Rule, ...]:
    """Return the rules of `elu`; with an alpha other than 1 it is `where(x > 0, elu(x), alpha * elu(x))`."""
    return (lambda t, y, x, *_: t * jnp.where(x > 0, 1, jnp.where(x < 0, y + alpha, alpha)).astype(y.dtype),)


@functools.cache
def _elu(alpha: float) -> Function:
    return ruled(lambda x: jax.nn.elu(x, alpha), *elu_rules(alpha))


def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return x, and alpha * (exp(x) - 1) where it is negative. `Elu`: alpha at 0 and at NaN."""
    return _elu(float(alpha))(x)


_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _selu_least(dtype: Any) -> Any:
    """Return the limit at minus infinity, rounded as JAX rounds it; the slope there is 0."""
    return -jnp.asarray(_SELU_SCALE, dtype) * jnp.asarray(_SELU_ALPHA, dtype)


selu: Final = ruled(
    jax.nn.selu,
    lambda t, y, x: t * jnp.where(y < 0, y - _selu_least(y.dtype), _SELU_SCALE).astype(y.dtype),
)
"""`Selu`: the scale at 0 and at NaN."""


maximum: Final = ruled(
    jnp.maximum, lambda t, z, x, y: where(x >= y, t), lambda t, z, x, y: jnp.where(x >= y, jnp.zeros_like(t), t)
)
"""`Maximum`: all of it to the first where both are equal, to the second where one is NaN."""

minimum: Final = ruled(
    jnp.minimum, lambda t, z, x, y: where(x <= y, t), lambda t, z, x, y: jnp.where(x <= y, jnp.zeros_like(t), t)
)
"""`Minimum`: the same."""


def _clipped(compute: Function) -> Function:
    def low_wins(x: Any, low: Any, high: Any) -> Any:
        return ~(jnp.minimum(x, high) >= low)

    return ruled(
        compute,
        lambda t, z, x, low, high: where((x <= high) & ~low_wins(x, low, high), t),
        lambda t, z, x, low, high: where(low_wins(x, low, high), t),
        lambda t, z, x, low, high: where(~(x <= high) & ~low_wins(x, low, high), t),
    )


clip_by_value: Final = _clipped(lambda x, low, high: jnp.maximum(jnp.minimum(x, high), low))
"""`clip_by_value` is `Minimum` and then `Maximum`: at a bound all of it to the number that is clipped."""

clip: Final = _clipped(jnp.clip)
"""The same of NumPy's `clip`, of which the upper bound comes last where it is below the lower."""

divide: Final = ruled(jnp.true_divide, lambda t, z, x, y: t / y, lambda t, z, x, y: t * divide(divide(-x, y), y))
"""`RealDiv`: divided twice, where a square would be too great."""


def floordiv(x: Any, y: Any) -> Any:
    """Return x / y rounded down, infinite where x is. `FloorDiv` has no derivative."""
    x, y = constant(x), constant(y)
    whole = jnp.issubdtype(jnp.result_type(x, y), jnp.integer)
    return jnp.floor_divide(x, y) if whole else jnp.floor(jnp.true_divide(x, y))


floormod: Final = ruled(jnp.mod, lambda t, z, x, y: t, lambda t, z, x, y: -t * floordiv(x, y))
"""`FloorMod`."""

squared_difference: Final = ruled(
    lambda x, y: jnp.square(x - y), lambda t, z, x, y: 2 * t * (x - y), lambda t, z, x, y: -2 * t * (x - y)
)
"""`SquaredDifference`."""


def _unlike_zero(x: Any) -> Any:
    return (x != 0).astype(jnp.result_type(x))


def _log_where_positive(x: Any) -> Any:
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, jnp.ones_like(x))), jnp.zeros_like(x))


POWER_RULES: Final[tuple[Rule, ...]] = (
    lambda t, z, x, y: t * y * power(x, y - 1),
    lambda t, z, x, y: t * z * _log_where_positive(x),
)

_power: Final = ruled(jnp.power, *POWER_RULES)


@functools.cache
def _power_of(kind: type, exponent: float) -> Function:
    """Return the function for an exponent that is a Python number; JAX turns integer exponents into products."""
    return ruled(lambda x: jnp.power(x, kind(exponent)), lambda t, z, x: t * exponent * power(x, kind(exponent - 1)))


def power(x: Any, y: Any) -> Any:
    """Return x to the power y. `Pow`: by the exponent 0 where the base is not positive."""
    if type(y) in (int, float):
        return _power_of(type(y), y)(x)
    return _power(x, y)


def _divided_no_nan(x: Any, y: Any) -> Any:
    zero = y == 0
    quotient = x / jnp.where(zero, jnp.ones_like(y), y)
    return jnp.where(zero, jnp.zeros_like(quotient), quotient)


divide_no_nan: Final = ruled(
    _divided_no_nan,
    lambda t, z, x, y: _divided_no_nan(t, y),
    lambda t, z, x, y: t * divide_no_nan(divide_no_nan(-x, y), y),
)
"""`DivNoNan`: 0 where the divisor is 0."""


def _times_no_nan(x: Any, y: Any) -> Any:
    product = jnp.where(y == 0, jnp.zeros_like(x), x) * y
    return jnp.where(y == 0, jnp.zeros_like(product), product)


multiply_no_nan: Final = ruled(_times_no_nan, lambda t, z, x, y: t * y, lambda t, z, x, y: no_change_times(t, x))
"""`MulNoNan`: 0 where the second is 0; by the second, where the change is 0."""


def _unless_zero(times: Function) -> Function:
    """Return x * times(y), and 0 where x is 0, also where y is NaN."""

    def function(x: Any, y: Any) -> Any:
        product = x * times(jnp.where(x == 0, jnp.ones_like(y), y))
        return jnp.where(x == 0, jnp.zeros_like(product), product)

    return function


xlogy: Final = ruled(
    _unless_zero(jnp.log),
    lambda t, z, x, y: t * xlogy(_unlike_zero(x), y),
    lambda t, z, x, y: t * xdivy(x, y),
)
"""`Xlogy`: 0 where x is 0, also by x."""

xlog1py: Final = ruled(
    _unless_zero(jnp.log1p),
    lambda t, z, x, y: t * xlog1py(_unlike_zero(x), y),
    lambda t, z, x, y: t * xdivy(x, y + 1),
)
"""`Xlog1py`."""


xdivy: Final = ruled(
    _unless_zero(lambda y: 1 / y),
    lambda t, z, x, y: t * xdivy(_unlike_zero(x), y),
    lambda t, z, x, y: t * xdivy(-x, jnp.square(y)),
)
"""`Xdivy`."""

atan2: Final = ruled(
    jnp.arctan2,
    lambda t, z, y, x: x * (t / (jnp.square(y) + jnp.square(x))),
    lambda t, z, y, x: -y * (t / (jnp.square(y) + jnp.square(x))),
)
"""`Atan2`."""

nextafter: Final = ruled(jnp.nextafter, lambda t, z, x, y: t, lambda t, z, x, y: where(jnp.zeros_like(z, bool), t))
"""`NextAfter`: the change of the first."""
