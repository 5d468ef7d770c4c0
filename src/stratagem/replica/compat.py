"""The only file of this folder that touches private parts of Keras, or what JAX spells differently by version.

Checked on Keras 3.12.0 and 3.15.1, JAX 0.7 to 0.10.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Final

import keras

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


_KERAS_OBJECTS: Final = (
    keras.Operation,
    keras.Loss,
    keras.Metric,
    keras.Optimizer,
    keras.Regularizer,
    keras.constraints.Constraint,
    keras.optimizers.LossScaleOptimizer,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.random.SeedGenerator,
)

_KEPT_BY_KERAS: Final = (
    "_compile_loss",
    "_compile_metrics",
    "_dtype_policy",
    "_layers",
    "_learning_rate",
    "_metrics",
    "_non_trainable_variables",
    "_operations",
    "_trainable",
    "_trainable_variables",
    "_variables",
)
"""What Keras's objects keep under names of their own, of what a step depends on."""


_OF_NO_ACCOUNT: Final = ("args", "dtype", "kwargs", "name", "self", "trainable")
"""Arguments of constructors that are kept elsewhere, or that no step depends on."""


def is_keras_object(value: Any) -> bool:
    """Whether a value is a layer, a model, an optimizer, a loss, a metric, or a part of one."""
    return isinstance(value, _KERAS_OBJECTS)


@functools.lru_cache(maxsize=1024)
def names_of_settings(kind: type) -> tuple[str, ...]:
    """Return the names under which objects of one of Keras's classes, or of one below it, keep what they compute with.

    These are arguments of the constructors of Keras's classes, whether it is trained, its variables, and the layers and
    metrics within. Initializers have done their work.
    """
    names: dict[str, None] = dict.fromkeys(_KEPT_BY_KERAS)
    for owner in kind.__mro__:
        if owner.__module__.partition(".")[0] == "keras" and "__init__" in vars(owner):
            names.update(dict.fromkeys(inspect.signature(owner.__init__).parameters))
    return tuple(name for name in names if not name.endswith("initializer") and name not in _OF_NO_ACCOUNT)
