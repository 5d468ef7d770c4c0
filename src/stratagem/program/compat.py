"""The only file of this folder that touches private parts of Keras, or what JAX spells differently by version.

Programs that JAX has traced are read and changed elsewhere; what their equations are called, and hold, is told here.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import keras
from jax.core import Tracer
from jax.extend import source_info_util
from jax.interpreters.partial_eval import dce_jaxpr
from keras.src.backend.common.stateless_scope import get_stateless_scope

from stratagem.core.foundations import lacking, look_up, parameters_of

_LIBRARIES: Final = ("jax", "keras", "stratagem")
"""Whose folders hold no program of a user's own."""

_get_opaque_trace_state: Final[Any] = look_up(
    "jax.extend.core:get_opaque_trace_state|jax.core:get_opaque_trace_state"  # the first since JAX 0.10
)
_trace_context: Final[Any] = look_up("jax._src.core:trace_ctx")

with jax.ensure_compile_time_eval():
    _NOT_TRACING: Final[Any] = _get_opaque_trace_state()


def stored_value(variable: Any) -> Any:
    """Return the value a variable holds itself, whatever scope is open; None until it is initialised."""
    return variable._value


def stored_dtype(variable: Any) -> str:
    """Return the dtype a variable holds; `variable.dtype` tells that of an autocast scope."""
    return variable._dtype


def enclosing_scope(scope: Any) -> Any:
    """Return the stateless scope that was open when `scope` was entered, or None."""
    return scope.original_scope


def innermost_scope() -> Any:
    """Return the innermost stateless scope that is open, or None."""
    return get_stateless_scope()


def context_of(equation: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the context that an equation was traced in: which axes of the mesh are its function's own.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.
    """
    return equation.ctx.manager


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
    with source_info_util.user_context(equation.source_info.traceback), context_of(equation):
        results = equation.primitive.bind(*functions, *values, **parameters)
    return results if equation.primitive.multiple_results else [results]


def value_of_constants(tensor: Any) -> Any:
    """Return the value of a tensor that is being traced, where it is computed from constants; else None.

    What is drawn counts as unknown: the next draw outside the trace would give the same numbers.

    Args:
        tensor: The tensor.
    """
    known: dict[Any, Any] = {}

    def find(operand: Any) -> Any:
        value = operand.full_lower() if isinstance(operand, Tracer) else operand
        if not isinstance(value, Tracer):
            return value
        equation = getattr(value, "parent", None)  # an argument of the traced function has none
        if equation is None or any(word in f"{equation.primitive} {equation.params}" for word in _DRAWS):
            return None
        if value.val not in known:
            operands = [find(each) for each in equation.in_tracers]
            if any(each is None for each in operands):
                return None
            known.update(zip(equation.outvars, run_equation(equation, operands), strict=True))
        return known[value.val]

    with jax.ensure_compile_time_eval():
        return find(tensor)


_DRAWS: Final = ("random_", "threefry", "rng_")
"""Beginnings of the names of JAX's primitives that draw random numbers."""


def line_of(equation: Any) -> str:
    """Return where a program of its own has asked for an equation, as "train.py:31 (train_step)"; "" if nowhere.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.
    """
    traceback = equation.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        if not any(f"/{library}/" in frame.file_name for library in _LIBRARIES):
            return f"{os.path.basename(frame.file_name)}:{frame.line_num} ({frame.function_name})"
    return ""


def scopes_of(equation: Any) -> str:
    """Return the scopes that an equation was made in, as "sequential/dense_1" or, of its gradient,
    "transpose(jvp(sequential))/dense_1"; "" if none.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.
    """
    scopes = str(equation.source_info.name_stack)
    return "" if scopes.endswith("()") else scopes


def operation_of(equation: Any) -> str:
    """Return what an equation computes; of a function with a derivative of its own, what it computes last.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.
    """
    inner = {"custom_jvp_call": "call_jaxpr", "jit": "jaxpr", "pjit": "jaxpr"}.get(equation.primitive.name)
    equations = parameters(equation)[inner].eqns if inner else []
    return operation_of(equations[-1]) if equations else equation.primitive.name


class _Parameters(dict[str, Any]):
    """The parameters of an equation that the list of `core.foundations` has; for others that list has to be longer."""

    def __init__(self, equation: Any) -> None:
        self._primitive = equation.primitive.name
        known = parameters_of(self._primitive)
        super().__init__({name: value for name, value in equation.params.items() if name in known})

    def __missing__(self, name: str) -> Any:
        raise lacking(self._primitive, name)


def parameters(equation: Any) -> Mapping[str, Any]:
    """Return the parameters of an equation by their names, those that we read.

    Args:
        equation: A `jax.extend.core.JaxprEqn`.

    Raises:
        VersionError: When one is asked for that this release of JAX has not.
    """
    return _Parameters(equation)


def scan_operands(equation: Any, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Divide the operands of a `lax.scan` into constants, what is carried, and rows.

    Args:
        equation: The equation of the scan.
        values: One for each operand.
    """
    given = parameters(equation)
    if "num_consts" in given:  # before JAX 0.11.2
        first = given["num_consts"]
        last = first + given["num_carry"]
        return list(values[:first]), list(values[first:last]), list(values[last:])
    constants, carried, rows = given["ft_in"].update(list(values)).unpack()
    return list(constants), list(carried), list(rows)


def needed_part(program: Any, used: Sequence[bool]) -> tuple[Any, list[bool]]:
    """Return a program without what only unused results need, and which of its inputs are left.

    Args:
        program: A `jax.extend.core.Jaxpr`.
        used: Which of its results are used.
    """
    return dce_jaxpr(program, list(used))


def trace_state() -> Any:
    """Return something that is equal wherever JAX traces the same function, and not in a loop or branch inside it."""
    return _get_opaque_trace_state()


def is_tracing() -> bool:
    """Whether JAX is tracing a function here: what is computed now is not known before the function runs."""
    return trace_state() != _NOT_TRACING


def is_left_by_a_trace(value: Any) -> bool:
    """Whether a value stood for a tensor in a function whose tracing has ended: nothing can be computed with it."""
    value = value.full_lower() if isinstance(value, Tracer) else value
    if not isinstance(value, Tracer) or value.to_concrete_value() is not None:
        return False
    trace = _trace_context.trace
    while trace is not None and trace is not value._trace:
        trace = getattr(trace, "parent_trace", None)
    return trace is None


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
"""Attributes of Keras's objects that a step depends on and that are no arguments of constructors."""


_IRRELEVANT: Final = ("args", "dtype", "kwargs", "name", "self", "trainable")
"""Arguments of constructors that are kept under other names, or that no step depends on."""


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
    return tuple(name for name in names if not name.endswith("initializer") and name not in _IRRELEVANT)
