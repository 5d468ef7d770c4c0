"""Functions of numbers, element by element: `tf.abs`, `tf.math.log`, `tf.add`, `tf.equal`.

What NumPy and JAX have under another name stands in a table; what they lack is written below it. Where JAX's derivative
is not TensorFlow's, the function of `stratagem.tf.derivatives` is taken (`tnp` and `xp` do so by themselves).
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.program.tracing import is_traced
from stratagem.tf import derivatives
from stratagem.tf.tensors.operation import held, is_text, on_host, operands, operation, tensor, texts, tnp, xp

_OF_ONE: Final = {
    "abs": "abs",
    "acos": "arccos",
    "acosh": "arccosh",
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
    "atan2": "arctan2",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "less": "less",
    "less_equal": "less_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "nextafter": "nextafter",
    "pow": "power",
    "subtract": "subtract",
}
"""Functions of two tensors, and what NumPy calls them."""

_OF_JAX: Final = {
    "bessel_i0": derivatives.bessel_i0,
    "bessel_i0e": derivatives.bessel_i0e,
    "bessel_i1": derivatives.bessel_i1,
    "bessel_i1e": derivatives.bessel_i1e,
    "digamma": derivatives.digamma,
    "erf": derivatives.erf,
    "erfc": derivatives.erfc,
    "erfinv": jax.lax.erf_inv,
    "expint": derivatives.expint,
    "lgamma": derivatives.lgamma,
    "log_sigmoid": jax.nn.log_sigmoid,
    "ndtri": derivatives.ndtri,
    "sigmoid": jax.scipy.special.expit,
    "softplus": jax.nn.softplus,
    "softsign": derivatives.softsign,
    "spence": derivatives.spence,
}
"""Functions of one tensor that NumPy has not."""

_OF_JAX_TWO: Final = {
    "igamma": derivatives.igamma,
    "igammac": derivatives.igammac,
    "polygamma": derivatives.polygamma,
    "xdivy": derivatives.xdivy,
    "xlog1py": derivatives.xlog1py,
    "xlogy": derivatives.xlogy,
    "zeta": derivatives.zeta,
}
"""Functions of two tensors that NumPy has not."""

_PARAMETERS: Final = {
    "angle": ("input",),
    "atan2": ("y", "x"),
    "igamma": ("a", "x"),
    "igammac": ("a", "x"),
    "imag": ("input",),
    "nextafter": ("x1", "x2"),
    "polygamma": ("a", "x"),
    "real": ("input",),
    "softplus": ("features",),
    "softsign": ("features",),
    "zeta": ("x", "q"),
}
"""TensorFlow's names of arguments, where they are not x, or x and y."""


def _function(name: str, on_host_too: str | None, on_jax: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a function of `count` tensors.

    Args:
        name: TensorFlow's.
        on_host_too: NumPy's name, where NumPy has it.
        on_jax: What computes elsewhere.
        count: How many.
    """
    parameters = _PARAMETERS.get(name, ("x", "y")[:count])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [*(inspect.Parameter(each, kind) for each in parameters), inspect.Parameter("name", kind, default=None)]
    )

    def function(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        parts = operands(*(given[each] for each in parameters))
        if on_host_too is not None and on_host(*parts):
            return getattr(np, on_host_too)(*parts)
        return on_jax(*(jnp.asarray(part) if count == 1 or on_host_too is None else part for part in parts))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`tf.math.{name}` of {' and '.join(parameters)}, element by element; `name` has no effect."
    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return operation(function)


for _table, _count in ((_OF_ONE, 1), (_OF_TWO, 2)):
    for _name, _theirs in _table.items():
        globals()[_name] = _function(_name, _theirs, getattr(tnp, _theirs), _count)
for _table, _count in ((_OF_JAX, 1), (_OF_JAX_TWO, 2)):
    for _name, _on_jax in _table.items():
        globals()[_name] = _function(_name, None, _on_jax, _count)


@operation
def add(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x + y; texts one after the other (`tf.math.add`)."""
    if is_text(x) or is_text(y):
        return texts(x) + texts(y)
    x, y = operands(x, y)
    return xp(x, y).add(x, y)


@operation
def equal(x: Any, y: Any, name: str | None = None) -> Any:
    """Return whether elements are equal (`tf.math.equal`).

    Example:
        >>> equal(["cat", "eel"], "eel").tolist()
        [False, True]
    """
    if is_text(x) or is_text(y):
        return texts(x) == texts(y)
    x, y = operands(x, y)
    return xp(x, y).equal(x, y)


@operation
def not_equal(x: Any, y: Any, name: str | None = None) -> Any:
    """Return whether elements are not equal (`tf.math.not_equal`)."""
    if is_text(x) or is_text(y):
        return texts(x) != texts(y)
    x, y = operands(x, y)
    return xp(x, y).not_equal(x, y)


@operation
def angle(input: Any, name: str | None = None) -> Any:
    """Return the angle of complex numbers; of others 0, and pi where they are negative (`tf.math.angle`)."""
    x = tensor(input)
    if np.issubdtype(x.dtype, np.complexfloating):
        return xp(x).angle(x)
    return xp(x).where(x < 0, xp(x).full_like(x, np.pi), xp(x).zeros_like(x))


def _shifted(x: Any, y: Any, shift: str) -> Any:
    """Shift by no less than 0 bits and by less than there are, as TensorFlow's kernels do."""
    x, y = operands(x, y)
    numpy, bits = xp(x, y), np.iinfo(x.dtype).bits
    return getattr(numpy, shift)(x, numpy.clip(y, 0, bits - 1))


@operation
def left_shift(x: Any, y: Any, name: str | None = None) -> Any:
    """Return whole numbers with their bits moved to the left (`tf.bitwise.left_shift`)."""
    return _shifted(x, y, "left_shift")


@operation
def right_shift(x: Any, y: Any, name: str | None = None) -> Any:
    """Return whole numbers with their bits moved to the right, the sign kept (`tf.bitwise.right_shift`)."""
    return _shifted(x, y, "right_shift")


@operation
def invert(x: Any, name: str | None = None) -> Any:
    """Return whole numbers with each bit the other (`tf.bitwise.invert`)."""
    x = tensor(x)
    return xp(x).invert(x)


def _refuse_division_by_zero(x: Any, y: Any) -> None:
    whole = np.issubdtype(jnp.result_type(y), np.integer) and np.issubdtype(jnp.result_type(x), np.integer)
    if whole and not is_traced(y) and not np.all(np.asarray(y)):
        raise InputError(
            "A whole number is divided by 0.",
            "There is no such whole number; TensorFlow refuses it too.",
            "Correct the divisor, or divide floating-point numbers.",
        )


@operation
def floordiv(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x / y, rounded down (`tf.math.floordiv`).

    Raises:
        InputError: A whole number is divided by 0.
    """
    x, y = operands(x, y)
    _refuse_division_by_zero(x, y)
    return xp(x, y).floor_divide(x, y)


@operation
def floormod(x: Any, y: Any, name: str | None = None) -> Any:
    """Return what x / y leaves, of the divisor's sign (`tf.math.floormod`).

    Raises:
        InputError: A whole number is divided by 0.
    """
    x, y = operands(x, y)
    _refuse_division_by_zero(x, y)
    return xp(x, y).mod(x, y)


mod = floormod


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
    x, y = operands(x, y)
    if on_host(x, y):
        return np.where(y == 0, np.zeros_like(x), x / np.where(y == 0, np.ones_like(y), y))
    return derivatives.divide_no_nan(x, y)


@operation
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x * y, and 0 where y is 0, also where x is not finite (`tf.math.multiply_no_nan`)."""
    x, y = operands(x, y)
    if on_host(x, y):
        return np.where(y == 0, np.zeros_like(y), np.where(y == 0, np.zeros_like(x), x) * y)
    return derivatives.multiply_no_nan(x, y)


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
    return (1 / np.sqrt(x)).astype(x.dtype) if on_host(x) else derivatives.rsqrt(x)


@operation
def squared_difference(x: Any, y: Any, name: str | None = None) -> Any:
    """Return (x - y) squared (`tf.math.squared_difference`)."""
    x, y = operands(x, y)
    return np.square(x - y) if on_host(x, y) else derivatives.squared_difference(x, y)


@operation
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a number times a tensor (`tf.math.scalar_mul`)."""
    scalar, x = operands(scalar, x)
    return xp(scalar, x).multiply(scalar, x)


@operation
def add_n(inputs: Any, name: str | None = None) -> Any:
    """Return the sum of several tensors, or of the rows of one (`tf.math.add_n`).

    Raises:
        InputError: There are none, or of other shapes.
    """
    parts = [tensor(part) for part in inputs]
    if not parts:
        raise InputError("add_n was given an empty list.", "Its shape is not known.", "Give it at least one tensor.")
    if len({tuple(part.shape) for part in parts}) > 1:
        raise InputError(
            f"add_n was given tensors of shapes {', '.join(str(tuple(part.shape)) for part in parts)}.",
            "It adds tensors of one shape; it does not broadcast, in TensorFlow neither.",
            "Write a + b, or tf.reduce_sum.",
        )
    return sum(parts[1:], start=parts[0])


@operation
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Any:
    """Return the sum of tensors (`tf.math.accumulate_n`), as `add_n`."""
    return add_n(inputs)


@operation
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Any:
    """Return the regularised incomplete beta function (`tf.math.betainc`)."""
    return derivatives.betainc(*(jnp.asarray(tensor(value)) for value in (a, b, x)))


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
    x, low, high = operands(tensor(t), clip_value_min, clip_value_max)
    if np.broadcast_shapes(x.shape, np.shape(low), np.shape(high)) != x.shape:
        raise InputError(
            f"clip_by_value was given a tensor of shape {x.shape} and bounds of shapes {np.shape(low)} and "
            f"{np.shape(high)}.",
            "The result would have another shape than the tensor.",
            "Give bounds that broadcast to the tensor's shape.",
        )
    if on_host(x, low, high):
        return np.maximum(np.minimum(x, high), low).astype(x.dtype)
    return derivatives.clip_by_value(x, low, high)


realdiv = truediv


@operation
def truncatediv(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x / y without its fraction (`tf.truncatediv`).

    Raises:
        InputError: A whole number is divided by 0.

    Example:
        >>> truncatediv([7, -7], 2).tolist()
        [3, -3]
    """
    x, y = operands(x, y)
    _refuse_division_by_zero(x, y)
    if np.issubdtype(jnp.result_type(x, y), np.integer):
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.trunc(derivatives.constant(jnp.asarray(x)) / derivatives.constant(jnp.asarray(y)))


@operation
def truncatemod(x: Any, y: Any, name: str | None = None) -> Any:
    """Return what x / y without its fraction leaves, of the sign of x (`tf.truncatemod`).

    Raises:
        InputError: A whole number is divided by 0.

    Example:
        >>> truncatemod([7, -7], 2).tolist()
        [1, -1]
    """
    x, y = operands(x, y)
    _refuse_division_by_zero(x, y)
    return jnp.fmod(derivatives.constant(jnp.asarray(x)), derivatives.constant(jnp.asarray(y)))


@operation
def erfcinv(x: Any, name: str | None = None) -> Any:
    """Return what `erfc` is x of (`tf.math.erfcinv`)."""
    x = jnp.asarray(tensor(x))
    return -derivatives.ndtri(0.5 * x) * jnp.asarray(np.sqrt(0.5), x.dtype)


@operation
def lbeta(x: Any, name: str | None = None) -> Any:
    """Return the logarithm of the beta function of the numbers along the last axis (`tf.math.lbeta`).

    Example:
        >>> f"{float(lbeta([1.0, 2.0])):.4f}"
        '-0.6931'
    """
    x = jnp.asarray(tensor(x))
    return jnp.sum(derivatives.lgamma(x), -1) - derivatives.lgamma(jnp.sum(x, -1))
