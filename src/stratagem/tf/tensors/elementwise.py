"""Functions of numbers, element by element: `tf.abs`, `tf.math.log`, `tf.add`, `tf.equal`.

Those that NumPy or JAX have under some name come first, a line each; the others are written below them. Where JAX's
derivative is not that of TensorFlow, the function of `stratagem.tf.derivatives` is taken (`tnp` and `xp` do so).
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/math
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.program.tracing import is_traced
from stratagem.tf import derivatives
from stratagem.tf.tensors.marks import Array, Operand, Tensor
from stratagem.tf.tensors.operation import held, is_text, on_host, operands, operation, tensor, texts, tnp, xp


def _elementwise(name: str, computes: str | Callable[..., Any], *parameters: str) -> Callable[..., Any]:
    """Return a function of tensors, element by element.

    Args:
        name: TensorFlow's.
        computes: NumPy's name of it; or what computes it on JAX where NumPy does not have it.
        *parameters: TensorFlow's names of its arguments.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(each, kind) for each in parameters])
    on_numpy = getattr(np, computes) if isinstance(computes, str) else None
    on_jax = getattr(tnp, computes) if isinstance(computes, str) else computes
    takes_numbers = on_numpy is not None and len(parameters) > 1  # of Python: they take the other's dtype

    def function(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        parts = operands(*(given[each] for each in parameters))
        if on_numpy is not None and on_host(*parts):
            return on_numpy(*parts)
        return on_jax(*(part if takes_numbers else jnp.asarray(part) for part in parts))

    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return operation(function, name, f"`tf.math.{name}` of {' and '.join(parameters)}, element by element.")


abs = _elementwise("abs", "abs", "x")
acos = _elementwise("acos", "arccos", "x")
acosh = _elementwise("acosh", "arccosh", "x")
asin = _elementwise("asin", "arcsin", "x")
asinh = _elementwise("asinh", "arcsinh", "x")
atan = _elementwise("atan", "arctan", "x")
atan2 = _elementwise("atan2", "arctan2", "y", "x")
atanh = _elementwise("atanh", "arctanh", "x")
bessel_i0 = _elementwise("bessel_i0", derivatives.bessel_i0, "x")
bessel_i0e = _elementwise("bessel_i0e", derivatives.bessel_i0e, "x")
bessel_i1 = _elementwise("bessel_i1", derivatives.bessel_i1, "x")
bessel_i1e = _elementwise("bessel_i1e", derivatives.bessel_i1e, "x")
bitwise_and = _elementwise("bitwise_and", "bitwise_and", "x", "y")
bitwise_or = _elementwise("bitwise_or", "bitwise_or", "x", "y")
bitwise_xor = _elementwise("bitwise_xor", "bitwise_xor", "x", "y")
ceil = _elementwise("ceil", "ceil", "x")
conj = _elementwise("conj", "conj", "x")
cos = _elementwise("cos", "cos", "x")
cosh = _elementwise("cosh", "cosh", "x")
digamma = _elementwise("digamma", derivatives.digamma, "x")
erf = _elementwise("erf", derivatives.erf, "x")
erfc = _elementwise("erfc", derivatives.erfc, "x")
erfinv = _elementwise("erfinv", jax.lax.erf_inv, "x")
exp = _elementwise("exp", "exp", "x")
expint = _elementwise("expint", derivatives.expint, "x")
expm1 = _elementwise("expm1", "expm1", "x")
floor = _elementwise("floor", "floor", "x")
greater = _elementwise("greater", "greater", "x", "y")
greater_equal = _elementwise("greater_equal", "greater_equal", "x", "y")
igamma = _elementwise("igamma", derivatives.igamma, "a", "x")
igammac = _elementwise("igammac", derivatives.igammac, "a", "x")
imag = _elementwise("imag", "imag", "input")
invert = _elementwise("invert", "invert", "x")
is_finite = _elementwise("is_finite", "isfinite", "x")
is_inf = _elementwise("is_inf", "isinf", "x")
is_nan = _elementwise("is_nan", "isnan", "x")
less = _elementwise("less", "less", "x", "y")
less_equal = _elementwise("less_equal", "less_equal", "x", "y")
lgamma = _elementwise("lgamma", derivatives.lgamma, "x")
log = _elementwise("log", "log", "x")
log1p = _elementwise("log1p", "log1p", "x")
log_sigmoid = _elementwise("log_sigmoid", jax.nn.log_sigmoid, "x")
logical_and = _elementwise("logical_and", "logical_and", "x", "y")
logical_not = _elementwise("logical_not", "logical_not", "x")
logical_or = _elementwise("logical_or", "logical_or", "x", "y")
logical_xor = _elementwise("logical_xor", "logical_xor", "x", "y")
maximum = _elementwise("maximum", "maximum", "x", "y")
minimum = _elementwise("minimum", "minimum", "x", "y")
multiply = _elementwise("multiply", "multiply", "x", "y")
ndtri = _elementwise("ndtri", derivatives.ndtri, "x")
negative = _elementwise("negative", "negative", "x")
nextafter = _elementwise("nextafter", "nextafter", "x1", "x2")
polygamma = _elementwise("polygamma", derivatives.polygamma, "a", "x")
pow = _elementwise("pow", "power", "x", "y")
real = _elementwise("real", "real", "input")
reciprocal = _elementwise("reciprocal", "reciprocal", "x")
rint = _elementwise("rint", "rint", "x")
round = _elementwise("round", "round", "x")
scalar_mul = _elementwise("scalar_mul", "multiply", "scalar", "x")
sigmoid = _elementwise("sigmoid", jax.scipy.special.expit, "x")
sign = _elementwise("sign", "sign", "x")
sin = _elementwise("sin", "sin", "x")
sinh = _elementwise("sinh", "sinh", "x")
softplus = _elementwise("softplus", jax.nn.softplus, "features")
softsign = _elementwise("softsign", derivatives.softsign, "features")
spence = _elementwise("spence", derivatives.spence, "x")
sqrt = _elementwise("sqrt", "sqrt", "x")
square = _elementwise("square", "square", "x")
subtract = _elementwise("subtract", "subtract", "x", "y")
tan = _elementwise("tan", "tan", "x")
tanh = _elementwise("tanh", "tanh", "x")
xdivy = _elementwise("xdivy", derivatives.xdivy, "x", "y")
xlog1py = _elementwise("xlog1py", derivatives.xlog1py, "x", "y")
xlogy = _elementwise("xlogy", derivatives.xlogy, "x", "y")
zeta = _elementwise("zeta", derivatives.zeta, "x", "q")


def _of_texts_too(name: str, of_texts: Callable[[Any, Any], Any], text: str) -> Callable[..., Any]:
    def function(x: Any, y: Any) -> Any:
        if is_text(x) or is_text(y):
            return of_texts(texts(x), texts(y))
        x, y = operands(x, y)
        return getattr(xp(x, y), name)(x, y)

    return operation(function, name, text)


add = _of_texts_too("add", operator.add, "Return x + y; for texts, one after the other (`tf.math.add`).")
equal = _of_texts_too("equal", operator.eq, "Return whether elements are equal (`tf.math.equal`).")
not_equal = _of_texts_too("not_equal", operator.ne, "Return whether elements are not equal (`tf.math.not_equal`).")


@operation
def angle(input: Tensor) -> Any:
    """Return the angle of complex numbers; for real numbers 0, or pi if they are negative (`tf.math.angle`)."""
    if np.issubdtype(input.dtype, np.complexfloating):
        return xp(input).angle(input)
    return xp(input).where(input < 0, xp(input).full_like(input, np.pi), xp(input).zeros_like(input))


def _shifted(x: Any, y: Any, shift: str) -> Any:
    """Shift by no less than 0 bits and by less than there are, as TensorFlow's kernels do."""
    numpy, bits = xp(x, y), np.iinfo(x.dtype).bits
    return getattr(numpy, shift)(x, numpy.clip(y, 0, bits - 1))


@operation
def left_shift(x: Operand, y: Operand) -> Any:
    """Return whole numbers with their bits moved to the left (`tf.bitwise.left_shift`)."""
    return _shifted(x, y, "left_shift")


@operation
def right_shift(x: Operand, y: Operand) -> Any:
    """Return whole numbers with their bits moved to the right, the sign kept (`tf.bitwise.right_shift`)."""
    return _shifted(x, y, "right_shift")


def _refuse_division_by_zero(x: Any, y: Any) -> None:
    whole = np.issubdtype(jnp.result_type(y), np.integer) and np.issubdtype(jnp.result_type(x), np.integer)
    if whole and not is_traced(y) and not np.all(np.asarray(y)):
        raise InputError("A whole number is divided by 0.", "Correct the divisor, or divide floating-point numbers.")


@operation
def floordiv(x: Operand, y: Operand) -> Any:
    """Return x / y, rounded down (`tf.math.floordiv`).

    Raises:
        InputError: A whole number is divided by 0.
    """
    _refuse_division_by_zero(x, y)
    return xp(x, y).floor_divide(x, y)


@operation
def floormod(x: Operand, y: Operand) -> Any:
    """Return the remainder of x / y with the sign of y (`tf.math.floormod`).

    Raises:
        InputError: A whole number is divided by 0.
    """
    _refuse_division_by_zero(x, y)
    return xp(x, y).mod(x, y)


mod = floormod


@operation
def truediv(x: Operand, y: Operand) -> Any:
    """Return x / y; whole numbers are divided as floating-point ones (`tf.math.truediv`, `tf.math.divide`).

    Example:
        >>> truediv([3, 4], 2).tolist()
        [1.5, 2.0]
    """
    quotient = xp(x, y).true_divide(x, y)
    return quotient.astype(held("float32")) if quotient.dtype == "float64" and x.dtype != "float64" else quotient


divide = truediv


@operation
def divide_no_nan(x: Operand, y: Operand) -> Any:
    """Return x / y, or 0 where y is 0 (`tf.math.divide_no_nan`).

    Example:
        >>> divide_no_nan([3.0, 1.0], [0.0, 2.0]).tolist()
        [0.0, 0.5]
    """
    if on_host(x, y):
        return np.where(y == 0, np.zeros_like(x), x / np.where(y == 0, np.ones_like(y), y))
    return derivatives.divide_no_nan(x, y)


@operation
def multiply_no_nan(x: Operand, y: Operand) -> Any:
    """Return x * y, or 0 where y is 0, even if x is not finite (`tf.math.multiply_no_nan`)."""
    if on_host(x, y):
        return np.where(y == 0, np.zeros_like(y), np.where(y == 0, np.zeros_like(x), x) * y)
    return derivatives.multiply_no_nan(x, y)


@operation
def reciprocal_no_nan(x: Tensor) -> Any:
    """Return 1 / x, or 0 where x is 0 (`tf.math.reciprocal_no_nan`)."""
    return divide_no_nan(xp(x).ones_like(x), x)


@operation
def rsqrt(x: Tensor) -> Any:
    """Return 1 / sqrt(x) (`tf.math.rsqrt`).

    Example:
        >>> rsqrt([4.0, 1.0]).tolist()
        [0.5, 1.0]
    """
    return (1 / np.sqrt(x)).astype(x.dtype) if on_host(x) else derivatives.rsqrt(x)


@operation
def squared_difference(x: Operand, y: Operand) -> Any:
    """Return (x - y) squared (`tf.math.squared_difference`)."""
    return np.square(x - y) if on_host(x, y) else derivatives.squared_difference(x, y)


@operation
def add_n(inputs: Any) -> Any:
    """Return the sum of several tensors, or of the rows of one (`tf.math.add_n`).

    Raises:
        InputError: There are no tensors, or their shapes differ.
    """
    parts = [tensor(part) for part in inputs]
    if not parts:
        raise InputError("add_n was given an empty list.", "Give it at least one tensor.")
    if len({tuple(part.shape) for part in parts}) > 1:
        raise InputError(
            f"add_n was given tensors of shapes {', '.join(str(tuple(part.shape)) for part in parts)}.",
            "It adds tensors of one shape. It does not broadcast, and neither does TensorFlow.",
            "Write a + b, or tf.reduce_sum.",
        )
    return sum(parts[1:], start=parts[0])


@operation
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None) -> Any:
    """Return the sum of tensors (`tf.math.accumulate_n`), as `add_n`."""
    return add_n(inputs)


@operation
def betainc(a: Array, b: Array, x: Array) -> Any:
    """Return the regularised incomplete beta function (`tf.math.betainc`)."""
    return derivatives.betainc(a, b, x)


@operation
def complex(real: Tensor, imag: Tensor) -> Any:
    """Return complex numbers from their real and imaginary parts (`tf.complex`)."""
    return real + 1j * imag


@operation
def polyval(coeffs: Any, x: Any) -> Any:
    """Return a polynomial's values, by Horner's rule (`tf.math.polyval`).

    Args:
        coeffs: A list of tensors, the coefficient of the highest power first.
        x: The points at which to compute it.

    Example:
        >>> float(polyval([1.0, 0.0, 2.0], 3.0))
        11.0
    """
    total = tensor(0.0)
    for coefficient in coeffs:
        total = total * x + tensor(coefficient)
    return total


@operation
def clip_by_value(t: Tensor, clip_value_min: Any, clip_value_max: Any) -> Any:
    """Return a tensor with its values limited to two bounds (`tf.clip_by_value`).

    Example:
        >>> clip_by_value([-1.0, 0.5, 3.0], 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    x, low, high = operands(t, clip_value_min, clip_value_max)
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
def truncatediv(x: Operand, y: Operand) -> Any:
    """Return x / y without its fraction (`tf.truncatediv`).

    Raises:
        InputError: A whole number is divided by 0.

    Example:
        >>> truncatediv([7, -7], 2).tolist()
        [3, -3]
    """
    _refuse_division_by_zero(x, y)
    if np.issubdtype(jnp.result_type(x, y), np.integer):
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.trunc(derivatives.constant(jnp.asarray(x)) / derivatives.constant(jnp.asarray(y)))


@operation
def truncatemod(x: Operand, y: Operand) -> Any:
    """Return the remainder of x / y with the sign of x (`tf.truncatemod`).

    Raises:
        InputError: A whole number is divided by 0.

    Example:
        >>> truncatemod([7, -7], 2).tolist()
        [1, -1]
    """
    _refuse_division_by_zero(x, y)
    return jnp.fmod(derivatives.constant(jnp.asarray(x)), derivatives.constant(jnp.asarray(y)))


@operation
def erfcinv(x: Array) -> Any:
    """Return the inverse of `erfc` (`tf.math.erfcinv`)."""
    return -derivatives.ndtri(0.5 * x) * jnp.asarray(np.sqrt(0.5), x.dtype)


@operation
def lbeta(x: Array) -> Any:
    """Return the logarithm of the beta function of the numbers along the last axis (`tf.math.lbeta`).

    Example:
        >>> f"{float(lbeta([1.0, 2.0])):.4f}"
        '-0.6931'
    """
    return jnp.sum(derivatives.lgamma(x), -1) - derivatives.lgamma(jnp.sum(x, -1))
