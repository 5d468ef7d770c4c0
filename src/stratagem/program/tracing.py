"""Tracing of a user's function: which variables it touches, and how to run it again.

A function given to `run` or `function` looks stateful: it reads and assigns Keras variables. While
it is traced, a `TracedVariables` scope gives each variable its value and notes reads and
assignments. `Replayable` can run the function again from its start, which is how a gradient tape
obtains the function that it differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.core import Tracer

from stratagem.core import patches
from stratagem.core.errors import UsageError
from stratagem.core.patches import Extent
from stratagem.program.autograph import rewritten_functions
from stratagem.program.compat import enclosing_scope, innermost_scope, stored_dtype, stored_value, trace_state
from stratagem.program.python_values import NeedsPython, explaining_tensors_as_python_values

ReadHook = Callable[[Any, Any], Any]
"""Function of a variable that is read and its value that returns the value to read."""


class TracedVariables(keras.StatelessScope):
    """Gives variables given values while a function is traced, and notes which it touches.

    Args:
        values: Pairs of a variable and its value.
        discovering: Whether the function may make variables; None for a part of a function.
    """

    def __init__(self, values: Sequence[tuple[Any, Any]] = (), *, discovering: bool | None = None) -> None:
        super().__init__(state_mapping=list(values), collect_losses=True)  # for `model.losses`
        self.discovering = discovering
        self.read: dict[int, Any] = {}
        self.assigned: dict[int, Any] = {}
        self.hooks: list[ReadHook] = []

    def get_current_value(self, variable: Any) -> Any:
        """Return the value that a read of `variable` gives."""
        self.read[id(variable)] = variable
        value = super().get_current_value(variable)
        outer = enclosing_scope(self)
        if value is None and self.discovering is False and stored_value(variable) is None:
            raise _made_each_time(variable)
        if value is None and outer is not None:
            value = outer.get_current_value(variable)
        if value is None and stored_value(variable) is None:
            # Made in this very trace and initialised after it: until then only its shape matters.
            value = keras.ops.zeros(variable.shape, stored_dtype(variable))
            super().add_update((variable, value))
        if value is None:  # not None: Keras gives what it finds here to regularizers
            value = stored_value(variable)
        for hook in self.hooks:
            value = hook(variable, value)
        return value

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Note an assignment: (variable, value)."""
        variable, value = update
        self.assigned[id(variable)] = variable
        if self.hooks:  # a tape sees reads; what is assigned is a constant to it, as in TensorFlow
            value = jax.lax.stop_gradient(value)
        super().add_update((variable, value))

    @property
    def touched(self) -> list[Any]:
        """The variables that were read or assigned, in order."""
        return list({**self.read, **self.assigned}.values())


class Replayable:
    """A function that is being traced and can be traced again from its start.

    Args:
        body: The function, with its arguments filled in.
        values: The variables' values at its start.
        discovering: Whether only the variables it touches matter, not what it computes.
    """

    def __init__(
        self, body: Callable[[], Any], values: Sequence[tuple[Any, Any]] = (), *, discovering: bool = False
    ) -> None:
        self.body = body
        self.values = list(values)
        self.discovering = discovering
        self.scope = TracedVariables(self.values, discovering=discovering)
        self.again = False
        """Whether this repeats a tracing that goes on, so that side effects of tracing have happened already."""
        self._trace: Any = None
        self.notes: dict[str, list[Any]] = {}
        """Notes of those who run the function again, kept for one tracing in the order in which they were made."""

    def is_in_part(self) -> bool:
        """Whether JAX traces a part of the function by itself: a branch, a turn of a loop, an element of a map."""
        return trace_state() != self._trace

    def run(self) -> Any:
        """Trace the function from its start."""
        self._trace = trace_state()
        outer = _innermost.set(self)
        try:
            with (
                patches.during(Extent.STEP, Extent.DERIVATIVES),
                rewritten_functions(),
                explaining_tensors_as_python_values(),
                self.scope,
            ):
                return self.body()
        finally:
            _innermost.reset(outer)


_innermost: ContextVar[Replayable | None] = ContextVar("innermost tracing", default=None)


def current_tracing() -> Replayable | None:
    """Return the innermost function that is being traced, or None outside all."""
    return _innermost.get()


def value_now(variable: Any) -> Any:
    """Return what a variable holds in a function that is being traced: in a branch or a loop, what it has there."""
    scope = innermost_scope()
    while (value := scope.get_current_value(variable)) is None:
        scope = enclosing_scope(scope)
    return value


def leave_tracing() -> None:
    """Leave the function that is being traced, if any: what comes needs Python at each step.

    `stratagem.function` then runs the function as Python, and what it calls is compiled.
    """
    if current_tracing() is not None:
        raise NeedsPython


class MadeEachTimeError(UsageError):
    """A function that is being compiled makes a variable each time it is traced."""


def _made_each_time(variable: Any) -> MadeEachTimeError:
    # Built here: Keras raises an error that leaves a layer again, made of its text.
    return MadeEachTimeError(
        f"A function that is being compiled makes a variable each time it runs: {variable.path!r}, of shape "
        f"{tuple(variable.shape)}.",
        "A compiled function runs without Python. The variable has no value yet, and later calls would not make it.",
        "Make layers, optimizers and variables outside the function, or keep them for the next call: `if self.dense "
        "is None: self.dense = keras.layers.Dense(3)`.",
    )


def read(tree: Any) -> Any:
    """Return a structure with the values of variables in their places, as they are now."""
    return jax.tree.map(lambda leaf: leaf.value if isinstance(leaf, keras.Variable) else leaf, tree)


def is_traced(value: Any) -> bool:
    """Whether a value is not known yet, because what computes it is being compiled."""
    return isinstance(value, Tracer) and value.to_concrete_value() is None


def own_array(value: Any) -> Any:
    """Return a copy of an array that is known, also in a function that is being compiled; others as they are.

    What is made of a variable must not be its array, which is gone when `fit` has given the variable another value.
    """
    if not isinstance(value, jax.Array) or is_traced(value):
        return value
    with jax.ensure_compile_time_eval():
        return jnp.copy(value)


def note_updated_alike(variables: Sequence[Any]) -> None:
    """Note that every replica gives these variables the same new value, so that they need no combining.

    Args:
        variables: What an optimizer updates, and the optimizer's own.
    """
    tracing = current_tracing()
    if tracing is not None:
        tracing.notes.setdefault("updated alike", []).extend(variables)
