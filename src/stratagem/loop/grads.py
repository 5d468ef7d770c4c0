"""`value_and_grad`: the JAX-shaped alternative to a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from stratagem.core import patches
from stratagem.core.patches import Extent
from stratagem.mesh.mesh import Tree
from stratagem.program.tracing import TracedVariables


def value_and_grad(fn: Callable[..., Any], variables: Sequence[Any], has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes `fn` and its gradient with respect to Keras variables.

    `fn` may read and assign variables. Assignments (metrics, moving statistics, seeds) take effect, but are not part of
    the derivative. It works inside `strategy.run`, inside `stratagem.function`, and on its own. The counterpart in JAX
    is https://docs.jax.dev/en/latest/_autosummary/jax.value_and_grad.html

    Args:
        fn: Function that returns a scalar; or (scalar, anything) with `has_aux`.
        variables: The variables to differentiate with respect to.
        has_aux: Whether `fn` returns more than the value.

    Returns:
        A function of `fn`'s arguments that returns (result of `fn`, list of gradients).

    Example:
        >>> import keras, stratagem
        >>> w = keras.Variable(3.0)
        >>> value, (slope,) = stratagem.value_and_grad(lambda x: w * w * x, [w])(2.0)
        >>> float(value), float(slope)
        (18.0, 12.0)
    """
    variables = list(variables)

    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, list[jax.Array]]:
        assigned: list[Any] = []

        def pure(values: list[jax.Array]) -> tuple[jax.Array, tuple[Tree, list[jax.Array]]]:
            scope = TracedVariables(list(zip(variables, values, strict=True)))
            with scope:
                result = fn(*args, **kwargs)
            value, aux = result if has_aux else (result, None)
            assigned[:] = list(scope.assigned.values())
            return value, (aux, [scope.get_current_value(variable) for variable in assigned])

        start = [variable.value for variable in variables]
        with patches.during(Extent.DERIVATIVES):
            (value, (aux, updates)), gradients = jax.value_and_grad(pure, has_aux=True)(start)
        for variable, update in zip(assigned, updates, strict=True):
            variable.assign(update)
        return ((value, aux) if has_aux else value), gradients

    return wrapped
