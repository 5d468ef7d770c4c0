"""Rules that give functions TensorFlow's derivatives where JAX's differ: at kinks, ties, bounds and infinities.

JAX takes the half of both sides at `max(x, 0)`, and 1 for `abs` at 0; TensorFlow has one side, and 0. A function that
is taken over from TensorFlow (a loss, a regulariser, a clip) begins to train exactly there. So each of these stands
once in this folder, with its value from JAX and TensorFlow's rule beside it; whoever computes such a formula takes it
from here.

A rule says what a change of an argument changes in the result: linear in the change, and of functions that have rules
themselves. So derivatives forwards and backwards, of any order, under `jit`, `vmap` and `shard_map`, follow by JAX's
own ways, and so do sums over axes that were broadcast. Whole numbers, which have no derivative, go past the rules, and
so do complex ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

Function = Callable[..., Any]
Rule = Callable[..., Any] | None
"""Function of (an argument's change, the result, all arguments) that returns the result's change; None: there is none,
and `tape.gradient` returns None as in TensorFlow."""


def ruled(compute: Function, *rules: Rule, of_complex: bool = False) -> Function:
    """Return a function with derivatives of its own.

    Args:
        compute: Function of arrays that returns an array.
        rules: For each argument the rule.
        of_complex: Whether the rules hold for complex numbers too; else these have JAX's derivative.

    Example:
        >>> doubled = ruled(lambda x: jnp.add(x, x), lambda t, y, x: 5 * t)
        >>> float(doubled(1.0)), float(jax.grad(doubled)(1.0))
        (2.0, 5.0)
    """

    def value(*arguments: Any) -> Any:
        return compute(*arguments)

    own = jax.custom_jvp(value)  # not of `compute`: JAX would hand its optional arguments to the rules

    def derivative(arguments: Any, changes: Any) -> Any:
        result = jnp.asarray(own(*arguments))
        parts = [
            jnp.broadcast_to(jnp.asarray(rule(change, result, *arguments), result.dtype), result.shape)
            for rule, change in zip(rules, changes, strict=True)
            if rule is not None and not isinstance(change, SymbolicZero)
        ]
        return result, sum(parts[1:], start=parts[0]) if parts else jnp.zeros_like(result)

    own.defjvp(derivative, symbolic_zeros=True)

    @functools.wraps(compute)
    def function(*arguments: Any) -> Any:
        kinds = [jnp.result_type(argument) for argument in arguments]
        beyond = any(jnp.issubdtype(kind, jnp.complexfloating) for kind in kinds)
        differs = of_complex if beyond else any(jnp.issubdtype(kind, jnp.floating) for kind in kinds)
        return own(*arguments) if differs else compute(*arguments)

    function.rules = rules  # pyright: ignore[reportAttributeAccessIssue]
    return function


def where(condition: Any, change: Any) -> Any:
    """Return a change where a condition holds, else 0: also where the change is infinite, unlike a product with 0."""
    return jnp.where(condition, change, jnp.zeros_like(change))


def _held(slope: Any) -> Any:
    """Return a slope, the greatest number where it is not finite."""
    return jnp.where(jnp.isfinite(slope), slope, jnp.copysign(jnp.finfo(slope.dtype).max, slope))


_held_with_slope: Final = ruled(_held, lambda t, y, slope: t)
"""Its derivative is that of the slope."""


def no_change_times(change: Any, slope: Any) -> Any:
    """Return change * slope, and 0 where the change is 0, also if the slope is infinite or NaN.

    No comparison of the change, which would not be linear: products with numbers that are finite. The greatest twice is
    infinite, and infinity times 0 is NaN; a change of 0 stays 0 at each step. JAX takes the steps backwards for a
    gradient, so what makes NaN stands in their middle.
    """
    wide = jnp.promote_types(slope.dtype, jnp.float32)  # of float16 XLA:CPU computes in float32: the greatest is no end
    slope = slope.astype(wide)
    most, one = jnp.full_like(slope, jnp.finfo(wide).max), jnp.ones_like(slope)
    infinite, unknown = ~jnp.isfinite(slope), jnp.isnan(slope)
    again = jnp.where(unknown, most, one)
    steps = [jnp.where(infinite, most, one), jnp.where(unknown, jnp.zeros_like(slope), one), again, again]
    return math.prod(steps, start=change.astype(wide) * _held_with_slope(slope)).astype(change.dtype)


def constant(x: Any) -> Any:
    """Return an array that is taken for a constant.

    `jax.lax.stop_gradient` returns a concrete array unchanged, and a tape recognises the arrays it watches by identity.
    So the result is a new array.
    """
    return lax.stop_gradient(x if isinstance(x, Tracer) else jnp.array(x, copy=True))
