"""Gradients of max-pooling that XLA:CPU computes quickly.

JAX asks XLA for them with `select_and_scatter_add`. XLA:CPU has no code for it: it makes four arrays of positions, as
large as the operand, reduces all five together, and scatters number by number. Of the step of a small convolutional
network that is half and more. Here the same is said with comparisons of shifted arrays, which XLA makes one loop of,
and the result has the same bits.

Only programs that a strategy runs on CPU devices are changed, before XLA sees them; JAX itself is left as it is.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxpr_as_fun

from stratagem.core.environment import XLA_AS_IS
from stratagem.replica.mesh import Tree

_MOST_PLACES: Final = 64
"""Each place of a window is an equation of its own; a window with more stays with XLA."""


def with_quick_max_pool(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """Return a function that computes the same, with gradients of max-pooling that suit XLA:CPU.

    Args:
        function: Function of one replica's arrays, which is compiled for the CPU.
    """
    if os.environ.get(XLA_AS_IS) == "1":
        return function

    @functools.wraps(function)
    def rewritten(*args: Tree) -> Tree:
        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        run = jaxpr_as_fun(ClosedJaxpr(_rewritten(traced.jaxpr), traced.consts))
        return jax.tree.structure(shapes).unflatten(run(*jax.tree.leaves(args)))

    return rewritten


def max_pool_gradient(
    source: jax.Array,
    operand: jax.Array,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> jax.Array:
    """Add each number of `source` where its window of `operand` has its maximum, the first where it has several.

    Bit by bit what XLA makes of `select_and_scatter_add` with "greater or equal": a number that is no number (NaN) wins
    over those before it and loses to those behind it, padding is minus infinity, and what meets at one place is added
    in the order of the windows.

    Args:
        source: What comes from the pooled array, of its shape.
        operand: What was pooled, floating, with as many dimensions.
        window: Its size in each dimension.
        strides: How far apart windows are.
        padding: What was put before and behind the operand in each dimension.

    Returns:
        The gradient, of the operand's shape.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([1.0, 3.0, 2.0, 2.0])
        >>> max_pool_gradient(jnp.array([10.0, 20.0]), x, (2,), (2,), ((0, 0),))
        Array([ 0., 10., 20.,  0.], dtype=float32)
    """
    lowest = lax.full_like(operand, -np.inf, shape=())
    padded = lax.pad(operand, lowest, [(low, high, 0) for low, high in padding])
    places = list(itertools.product(*map(range, window)))
    ends = [(n - 1) * stride + 1 for n, stride in zip(source.shape, strides, strict=True)]

    def at(place: Sequence[int]) -> jax.Array:
        return lax.slice(padded, place, [p + end for p, end in zip(place, ends, strict=True)], strides)

    best, chosen = at(places[0]), jnp.zeros(source.shape, jnp.int32)
    for i, place in enumerate(places[1:], 1):
        here = at(place)
        stays = best >= here
        best, chosen = jnp.where(stays, best, here), jnp.where(stays, chosen, i)
    zero = jnp.zeros((), source.dtype)
    source = jnp.where(source == 0, zero, source)  # XLA's sums begin with 0, and 0 + -0 is 0
    total = jnp.zeros(padded.shape, source.dtype)
    for i, place in reversed(list(enumerate(places))):  # the last place of a window is met first, in the first of them
        rest = [n - p - end for n, p, end in zip(padded.shape, place, ends, strict=True)]
        spread = [(p, r, stride - 1) for p, r, stride in zip(place, rest, strides, strict=True)]
        total += lax.pad(jnp.where(chosen == i, source, zero), zero, spread)
    low = [before for before, _ in padding]
    return lax.slice(total, low, [before + n for before, n in zip(low, operand.shape, strict=True)])


def _rewritten(program: Jaxpr) -> Jaxpr:
    """Return a program with the gradients replaced, also those in programs inside its equations.

    What has none stays the very object: XLA is given a function that is called twice once.
    """
    replaced = [_replaced(eqn) for eqn in program.eqns]
    if all(len(new) == 1 and new[0] is eqn for new, eqn in zip(replaced, program.eqns, strict=True)):
        return program
    return program.replace(eqns=[eqn for new in replaced for eqn in new])


def _replaced(eqn: JaxprEqn) -> list[JaxprEqn]:
    if _is_slow(eqn):
        return _quick(eqn)
    inside = {name: _with_rewritten(value) for name, value in eqn.params.items()}
    changed = any(inside[name] is not value for name, value in eqn.params.items())
    return [eqn.replace(params=inside)] if changed else [eqn]


def _with_rewritten(value: Any) -> Any:
    """Rewrite a program, or a tuple of programs, that an equation has for a parameter."""
    if isinstance(value, ClosedJaxpr):
        program = _rewritten(value.jaxpr)
        return value if program is value.jaxpr else ClosedJaxpr(program, value.consts)
    if isinstance(value, Jaxpr):
        return _rewritten(value)
    if isinstance(value, tuple):
        items = tuple(map(_with_rewritten, value))
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _is_slow(eqn: JaxprEqn) -> bool:
    """Whether an equation is the gradient of a max-pooling whose bits are known."""
    if eqn.primitive is not lax.select_and_scatter_add_p or eqn.params["select_prim"] is not lax.ge_p:
        return False
    window, strides = eqn.params["window_dimensions"], eqn.params["window_strides"]
    # Where windows overlap, numbers are added up, and XLA rounds the sum of short floats where it likes.
    exact = all(size <= stride for size, stride in zip(window, strides, strict=True))
    return np.prod(window) <= _MOST_PLACES and (exact or eqn.outvars[0].aval.dtype.name in ("float32", "float64"))


def _quick(eqn: JaxprEqn) -> list[JaxprEqn]:
    """Return the equations that take the place of one, with its operands and its result."""

    def gradient(source: jax.Array, operand: jax.Array) -> jax.Array:
        params = eqn.params
        return max_pool_gradient(
            source, operand, params["window_dimensions"], params["window_strides"], params["padding"]
        )

    traced = jax.make_jaxpr(gradient)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))
    program = traced.jaxpr
    names = dict(zip([*program.invars, *program.outvars], [*eqn.invars, *eqn.outvars], strict=True))

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [names.get(atom, atom) if isinstance(atom, Var) else atom for atom in atoms]

    return [e.replace(invars=renamed(e.invars), outvars=renamed(e.outvars)) for e in program.eqns]
