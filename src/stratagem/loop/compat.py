"""Running one equation of a traced computation, as it is spelt in JAX 0.7 to 0.10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def run_equation(equation: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Apply the primitive of an equation to values and return its results.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.
        values: Its operands.
    """
    parameters = equation.primitive.get_bind_params(equation.params)
    functions: Sequence[Any] = ()
    if isinstance(parameters, tuple):  # before JAX 0.10: (functions, parameters)
        functions, parameters = parameters
    with equation.ctx.manager:
        results = equation.primitive.bind(*functions, *values, **parameters)
    return results if equation.primitive.multiple_results else [results]
