"""The only file of this folder that touches private parts of Keras, or what JAX spells differently by version.

Checked on Keras 3.12.0 and 3.15.1, JAX 0.7 to 0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before JAX 0.10
    from jax.core import get_opaque_trace_state


def stored_value(variable: Any) -> Any:
    """Return the value a variable holds itself, whatever scope is open; None until it is initialised."""
    return variable._value


def stored_dtype(variable: Any) -> str:
    """Return the dtype a variable holds; `variable.dtype` tells that of an autocast scope."""
    return variable._dtype


def enclosing_scope(scope: Any) -> Any:
    """Return the stateless scope that was open when `scope` was entered, or None."""
    return scope.original_scope


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


def trace_state() -> Any:
    """Return something that is equal wherever JAX traces the same function, and not in a loop or branch inside it."""
    return get_opaque_trace_state()
