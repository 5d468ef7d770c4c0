"""Functions of numbers, element by element: `tf.abs`, `tf.math.log`, `tf.add`, `tf.equal`.

What NumPy and JAX have under another name stands in a table; what they lack is written below it.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp

from stratagem.core.errors import InputError, explain
from stratagem.tf.tensors.operation import held, operands, operation, tensor, xp

_OF_ONE: Final = {
    "abs": "abs",
    "acos": "arccos",
    "acosh": "arccosh",
    "angle": "angle",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "ceil": "ceil",
    "conj": "conj",
    "cos": "cos",
    "cosh": "cosh",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "imag": "imag",
    "is_finite": "isfinite",
    "is_inf": "isinf",
    "is_nan": "isnan",
    "log": "log",
    "log1p": "log1p",
    "logical_not": "logical_not",
    "negative": "negative",
    "real": "real",
    "reciprocal": "reciprocal",
    "rint": "rint",
    "round": "round",
    "sign": "sign",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
}
"""Functions of one tensor, and what NumPy calls them."""

_OF_TWO: Final = {
    "add": "add",
    "atan2": "arctan2",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "equal": "equal",
    "floordiv": "floor_divide",
    "floormod": "mod",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "left_shift": "left_shift",
    "less": "less",
    "less_equal": "less_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "maximum": "maximum",
    "minimum": "minimum",
    "mod": "mod",
    "multiply": "multiply",
    "nextafter": "nextafter",
    "not_equal": "not_equal",
    "pow": "power",
    "right_shift": "right_shift",
    "subtract": "subtract",
}
"""Functions of two tensors, and what NumPy calls them."""

_OF_JAX: Final = {
    "bessel_i0": "i0",
    "bessel_i0e": "i0e",
    "bessel_i1": "i1",
    "bessel_i1e": "i1e",
    "digamma": "digamma",
    "erf": "erf",
    "erfc": "erfc",
    "lgamma": "gammaln",
    "ndtri": "ndtri",
    "sigmoid": "expit",
}
"""Functions of one tensor that only `jax.scipy.special` has, and their names there."""

_OF_JAX_TWO: Final = {"igamma": "gammainc", "igammac": "gammaincc", "zeta": "zeta"}


def _of_one(name: str, theirs: str) -> Callable[..., Any]:
    def function(x: Any, name: str | None = None) -> Any:
        x = tensor(x)
        return getattr(xp(x), theirs)(x)

    return _known_as(function, name, "x")


def _of_two(name: str, theirs: str) -> Callable[..., Any]:
    def function(x: Any, y: Any, name: str | None = None) -> Any:
        x, y = operands(x, y)
        return getattr(xp(x, y), theirs)(x, y)

    return _known_as(function, name, "x and y")


def _of_jax(name: str, theirs: str) -> Callable[..., Any]:
    def function(x: Any, name: str | None = None) -> Any:
        return getattr(jax.scipy.special, theirs)(jnp.asarray(tensor(x)))

    return _known_as(function, name, "x")


def _of_jax_two(name: str, theirs: str) -> Callable[..., Any]:
    def function(a: Any, x: Any, name: str | None = None) -> Any:
        return getattr(jax.scipy.special, theirs)(jnp.asarray(tensor(a), held("float32")), jnp.asarray(tensor(x)))

    return _known_as(function, name, "a and x")


def _known_as(function: Callable[..., Any], name: str, of: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`tf.math.{name}` of {of}, element by element; `name` has no effect."
    return operation(function)


for _table, _make in ((_OF_ONE, _of_one), (_OF_TWO, _of_two), (_OF_JAX, _of_jax), (_OF_JAX_TWO, _of_jax_two)):
    globals().update({_name: _make(_name, _theirs) for _name, _theirs in _table.items()})


@operation
def truediv(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x / y; whole numbers are divided as floating-point ones (`tf.math.truediv`, `tf.math.divide`).

    Example:
        >>> truediv([3, 4], 2).tolist()
        [1.5, 2.0]
    """
    x, y = operands(x, y)
    quotient = xp(x, y).true_divide(x, y)
    return quotient.astype(held("float32")) if quotient.dtype == "float64" and x.dtype != "float64" else quotient


divide = truediv


@operation
def divide_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x / y, and 0 where y is 0 (`tf.math.divide_no_nan`).

    Example:
        >>> divide_no_nan([3.0, 1.0], [0.0, 2.0]).tolist()
        [0.0, 0.5]
    """
    x, y = tensor(x), tensor(y)
    numpy = xp(x, y)
    safe = numpy.where(y == 0, numpy.ones_like(y), y)
    return numpy.where(y == 0, numpy.zeros_like(x / safe), x / safe)


@operation
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x * y, and 0 where y is 0, also where x is not finite (`tf.math.multiply_no_nan`)."""
    x, y = tensor(x), tensor(y)
    numpy = xp(x, y)
    return numpy.where(y == 0, numpy.zeros_like(y), numpy.where(y == 0, numpy.zeros_like(x), x) * y)


@operation
def reciprocal_no_nan(x: Any, name: str | None = None) -> Any:
    """Return 1 / x, and 0 where x is 0 (`tf.math.reciprocal_no_nan`)."""
    x = tensor(x)
    return divide_no_nan(xp(x).ones_like(x), x)


@operation
def rsqrt(x: Any, name: str | None = None) -> Any:
    """Return 1 / sqrt(x) (`tf.math.rsqrt`).

    Example:
        >>> rsqrt([4.0, 1.0]).tolist()
        [0.5, 1.0]
    """
    x = tensor(x)
    return (1 / xp(x).sqrt(x)).astype(x.dtype) if xp(x) is not jnp else jax.lax.rsqrt(x)


@operation
def squared_difference(x: Any, y: Any, name: str | None = None) -> Any:
    """Return (x - y) squared (`tf.math.squared_difference`)."""
    x, y = operands(x, y)
    return xp(x, y).square(x - y)


@operation
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a number times a tensor (`tf.math.scalar_mul`)."""
    return multiply(scalar, x)  # noqa: F821 - of the table  # pyright: ignore[reportUndefinedVariable]


@operation
def add_n(inputs: Any, name: str | None = None) -> Any:
    """Return the sum of several tensors (`tf.math.add_n`).

    Raises:
        InputError: There are none.
    """
    parts = [tensor(part) for part in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    if not parts:
        raise InputError(
            explain("add_n was given an empty list.", "Its shape is not known.", "Give it at least one tensor.")
        )
    return sum(parts[1:], start=parts[0])


accumulate_n = add_n


@operation
def xlogy(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x * log(y), and 0 where x is 0 (`tf.math.xlogy`)."""
    return jax.scipy.special.xlogy(jnp.asarray(tensor(x)), jnp.asarray(tensor(y)))


@operation
def xlog1py(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x * log(1 + y), and 0 where x is 0 (`tf.math.xlog1py`)."""
    return jax.scipy.special.xlog1py(jnp.asarray(tensor(x)), jnp.asarray(tensor(y)))


@operation
def xdivy(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x / y, and 0 where x is 0 (`tf.math.xdivy`)."""
    x, y = tensor(x), tensor(y)
    numpy = xp(x, y)
    return numpy.where(x == 0, numpy.zeros_like(x), x / numpy.where(x == 0, numpy.ones_like(y), y))


@operation
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Any:
    """Return the regularised incomplete beta function (`tf.math.betainc`)."""
    return jax.scipy.special.betainc(*(jnp.asarray(tensor(value)) for value in (a, b, x)))


@operation
def erfinv(x: Any, name: str | None = None) -> Any:
    """Return what `erf` is x of (`tf.math.erfinv`)."""
    return jax.lax.erf_inv(jnp.asarray(tensor(x)))


@operation
def polygamma(a: Any, x: Any, name: str | None = None) -> Any:
    """Return the derivative of order a of `digamma` (`tf.math.polygamma`)."""
    order = jnp.asarray(tensor(a)).astype(jnp.int32)
    return jax.scipy.special.polygamma(order, jnp.asarray(tensor(x)))


@operation
def log_sigmoid(x: Any, name: str | None = None) -> Any:
    """Return log(sigmoid(x)) (`tf.math.log_sigmoid`)."""
    return jax.nn.log_sigmoid(jnp.asarray(tensor(x)))


@operation
def softplus(features: Any, name: str | None = None) -> Any:
    """Return log(1 + exp(x)) (`tf.math.softplus`)."""
    return jax.nn.softplus(jnp.asarray(tensor(features)))


@operation
def softsign(features: Any, name: str | None = None) -> Any:
    """Return x / (1 + |x|) (`tf.nn.softsign`)."""
    return jax.nn.soft_sign(jnp.asarray(tensor(features)))


@operation
def complex(real: Any, imag: Any, name: str | None = None) -> Any:
    """Return complex numbers of their parts (`tf.complex`)."""
    return tensor(real) + 1j * tensor(imag)


@operation
def polyval(coeffs: Any, x: Any, name: str | None = None) -> Any:
    """Return a polynomial's values, by Horner's rule (`tf.math.polyval`).

    Args:
        coeffs: A list of tensors, the coefficient of the highest power first.
        x: Where to compute it.
        name: No effect.

    Example:
        >>> float(polyval([1.0, 0.0, 2.0], 3.0))
        11.0
    """
    total = tensor(0.0)
    for coefficient in coeffs:
        total = total * x + tensor(coefficient)
    return total


@operation
def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Return a tensor with its values brought between two bounds (`tf.clip_by_value`).

    Example:
        >>> clip_by_value([-1.0, 0.5, 3.0], 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    t, low, high = operands(tensor(t), clip_value_min, clip_value_max)
    return xp(t, low, high).clip(t, low, high)
