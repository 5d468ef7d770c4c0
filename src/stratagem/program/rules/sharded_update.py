"""Updates in shards: what an optimizer does to whole variables, done by each replica to its shards alone.

The update is traced for whole variables, so that an optimizer sees the shapes that it expects, whichever it is. Its
equations are then run on shards: element by element as they are; sums over elements (norms, for clipping or for Lamb)
in each shard first, then over replicas; where an equation needs the whole of something (a product of matrices, for
Muon), that is gathered. So optimizers that go element by element compute the bits that they would compute on one
device, and the others the same numbers but for the order of sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from stratagem.mesh.mesh import AXIS, Tree
from stratagem.mesh.shards import gathered, shard_of, whole_of
from stratagem.program.compat import parameters, run_equation
from stratagem.program.interpret import Values, trace

_ELEMENTWISE: Final = frozenset(
    {
        *("abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e"),
        *("cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq"),
        *("erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "integer_pow", "is_finite"),
        *("le", "lgamma", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or"),
        *("pow", "real", "reduce_precision", "rem", "round", "rsqrt", "select_n", "sign", "sin", "sinh", "sqrt"),
        *("square", "stop_gradient", "sub", "tan", "tanh", "xor"),
    }
)
"""Equations that go element by element: operands have the shape of the result, or none."""

_OVER_REPLICAS: Final[Mapping[str, Callable[..., Any]]] = {
    "reduce_sum": lambda part: lax.psum(part, AXIS),
    "reduce_max": lambda part: lax.pmax(part, AXIS),
    "reduce_min": lambda part: lax.pmin(part, AXIS),
    "reduce_and": lambda part: lax.pmin(part.astype(jnp.int32), AXIS).astype(part.dtype),
    "reduce_or": lambda part: lax.pmax(part.astype(jnp.int32), AXIS).astype(part.dtype),
}
"""Equations that combine elements, with the function that combines their results for the shards."""

_CALLED: Final[Mapping[str, str]] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
}
"""Equations that call a function, with the parameter that holds its program; others get their operands whole."""

AxisOf = Callable[[Sequence[int]], int | None]
"""Function of a shape that returns the axis along which such arrays are divided, None for whole ones."""


def in_shards(update: Callable[..., Tree], axis_of: AxisOf, operands: Sequence[Tree], before: Tree) -> Tree:
    """Call a function that makes new values of variables, each replica for its shards. Only in a program of a replica.

    Args:
        update: Function of `operands` alone.
        axis_of: Which of them are divided.
        operands: Structures of arrays that are equal on all replicas.
        before: The variables' values before it, arranged as its result.

    Returns:
        What `update` returns, whole; `shard_of` it is there without any exchange.
    """
    leaves, structure = jax.tree.flatten(operands)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    traced, result = trace(update, structure.unflatten(shapes))
    given = [_divided(array, axis_of(array.shape)) for array in arrays]
    new = zip(_run(traced, given, axis_of), jax.tree.leaves(before), strict=True)
    return result.unflatten([_whole(value, old) for value, old in new])


@dataclass(frozen=True)
class _Shard:
    """This replica's shard of a value.

    Args:
        value: The shard.
        axis: Along which the whole is divided.
    """

    value: jax.Array
    axis: int


def _divided(value: Any, axis: int | None) -> Any:
    return value if axis is None else _Shard(shard_of(value, axis), axis)


def _whole(value: Any, before: jax.Array) -> Any:
    """Return the whole, which is not gathered before somebody needs it."""
    return whole_of(value.value, value.axis, before) if isinstance(value, _Shard) else value


def _gathered(value: Any) -> Any:
    return gathered(value.value, value.axis) if isinstance(value, _Shard) else value


def _run(traced: ClosedJaxpr, given: Sequence[Any], axis_of: AxisOf) -> list[Any]:
    """Run a program on arrays and shards; return arrays and shards."""
    values = Values(traced, given)
    for eqn in traced.jaxpr.eqns:
        values.write(eqn.outvars, _run_equation(eqn, values.read(eqn.invars), axis_of))
    return values.read(traced.jaxpr.outvars)


def _run_equation(eqn: JaxprEqn, operands: list[Any], axis_of: AxisOf) -> Sequence[Any]:
    if not any(isinstance(operand, _Shard) for operand in operands):
        return run_equation(eqn, operands)
    name = eqn.primitive.name
    if name in _CALLED and isinstance(program := parameters(eqn)[_CALLED[name]], ClosedJaxpr):
        return _run(program, operands, axis_of)
    if name == "cond":
        return _branch(parameters(eqn)["branches"], operands, axis_of)
    axis = _common_axis(eqn, operands) if name in _ELEMENTWISE else None
    if axis is not None:
        own = [operand.value if isinstance(operand, _Shard) else _part_of(operand, axis) for operand in operands]
        return [_Shard(run_equation(eqn, own)[0], axis)]
    if name in _OVER_REPLICAS:
        return [_combined(eqn, operands[0])]
    return run_equation(eqn, [*map(_gathered, operands)])


def _shape_of(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _common_axis(eqn: JaxprEqn, operands: Sequence[Any]) -> int | None:
    """Return the axis along which the shards among the operands of an elementwise equation are divided, if it is one.

    None, too, where an operand is neither of the shape of the result nor a number.
    """
    shape = _shape_of(eqn.outvars[0])
    if any(_shape_of(atom) not in ((), shape) for atom in eqn.invars):
        return None
    axes = {operand.axis for operand in operands if isinstance(operand, _Shard)}
    return axes.pop() if len(axes) == 1 else None


def _part_of(whole: Any, axis: int) -> Any:
    return shard_of(jnp.asarray(whole), axis) if jnp.ndim(whole) else whole


def _combined(eqn: JaxprEqn, operand: _Shard) -> Any:
    """Combine elements of a shard, and of those of other replicas where the axis goes."""
    axes = parameters(eqn)["axes"]
    part = run_equation(eqn, [operand.value])[0]
    if operand.axis in axes:
        return _OVER_REPLICAS[eqn.primitive.name](part)
    return _Shard(part, operand.axis - sum(axis < operand.axis for axis in axes))


def _branch(branches: Sequence[ClosedJaxpr], operands: Sequence[Any], axis_of: AxisOf) -> list[Any]:
    """Choose between programs: replicas choose alike, as they know the same."""
    index, *given = operands
    axes = [axis_of(_shape_of(var)) for var in branches[0].jaxpr.outvars]
    divided = {place: value.axis for place, value in enumerate(given) if isinstance(value, _Shard)}

    def run(branch: ClosedJaxpr, *arrays: jax.Array) -> list[jax.Array]:
        own = [_Shard(array, divided[i]) if i in divided else array for i, array in enumerate(arrays)]
        return [_as(value, axis) for value, axis in zip(_run(branch, own, axis_of), axes, strict=True)]

    arrays = [value.value if isinstance(value, _Shard) else value for value in given]
    results = lax.switch(_gathered(index), [functools.partial(run, branch) for branch in branches], *arrays)
    return [result if axis is None else _Shard(result, axis) for result, axis in zip(results, axes, strict=True)]


def _as(value: Any, axis: int | None) -> jax.Array:
    """Return the shard along an axis, or the whole, of something."""
    if isinstance(value, _Shard) and value.axis == axis:
        return value.value
    whole = jnp.asarray(_gathered(value))
    return whole if axis is None else shard_of(whole, axis)
