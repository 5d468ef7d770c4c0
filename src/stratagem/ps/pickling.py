"""How functions travel from the chief to workers: Keras objects by their parts, variables by where they live.

A function drags along what it refers to: models, optimizers, metrics. Keras's own pickling would save and load a whole
archive, and make new variables. Here an object travels by its attributes, and all copies of a variable, in all
functions a worker gets, are one variable:

| what                       | becomes on the worker                                                          |
| -------------------------- | ------------------------------------------------------------------------------ |
| a variable                 | a `RemoteVariable`; on its way it moves to the parameter servers if it was not |
| the state of a seed        | a variable of the worker's own, with a stream of its own                       |
| an optimizer               | one that sends gradients to the servers                                        |
| per-worker values          | this worker's value                                                            |
| another Keras object       | a copy with the same attributes                                                |

Only the chief pickles, and only what the chief sent is unpickled.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import cloudpickle
import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import UsageError, explain
from stratagem.ps.client import Location
from stratagem.ps.compat import (
    HeldElsewhere,
    describe_container,
    described,
    empty_container,
    fill_container,
    fresh_optimizer,
    optimizer_settings,
    plain_variable_like,
    scaling_settings,
    set_counters,
    set_scaling,
    value_held,
    variable_like,
)
from stratagem.ps.placement import Placement
from stratagem.ps.scaling import apply_scaled
from stratagem.ps.task import current_task
from stratagem.ps.variables import RemoteVariable, apply_remotely, is_seed, remote_state

_STREAM: Final = 0x9E3779B9
"""As in `replica.variables`: multiples of it differ in many bits."""

_KERAS_OBJECTS: Final = (keras.layers.Layer, keras.metrics.Metric, keras.losses.Loss)

_OF_THE_CHIEF: Final = frozenset(
    ("train_function", "test_function", "predict_function", "history", "_jax_state", "_eval_epoch_iterator")
)
"""Attributes of a model that its loops on the chief need, and no step on a worker."""


_IMPORTED: Final = frozenset({*sys.stdlib_module_names, "stratagem", "keras", "jax", "numpy"})
"""Packages whose functions hold nothing of the program's; workers import them."""


class SharedValue:
    """A value that workers hold under a number, made on each when it is first needed there."""

    number: int


class _Pickler(cloudpickle.Pickler):
    """Pickles for workers; notes which shared values it refers to."""

    def __init__(self, file: io.BytesIO, placement: Placement) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._placement = placement
        self.needs: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | types.FunctionType):
            return super().reducer_override(obj)
        if isinstance(obj, SharedValue):
            self.needs.add(obj.number)
            return _shared_value, (obj.number,)
        if isinstance(obj, keras.Variable):
            return self._variable(obj)
        if isinstance(obj, keras.optimizers.Optimizer):
            return self._optimizer(obj)
        if isinstance(obj, _KERAS_OBJECTS):
            return _blank, (type(obj),), {k: v for k, v in vars(obj).items() if k not in _OF_THE_CHIEF}
        container = describe_container(obj)
        if container is not None:
            return empty_container, (type(obj),), container, None, None, fill_container
        if isinstance(obj, jax.Array):
            return jnp.asarray, (np.asarray(obj),)
        return super().reducer_override(obj)

    def _variable(self, variable: keras.Variable) -> Any:
        if is_seed(variable) and not isinstance(variable, HeldElsewhere):
            return _seed, (id(variable), described(variable), np.asarray(value_held(variable)))
        self._placement.place([variable])
        assert isinstance(variable, RemoteVariable)
        return _remote_variable, (variable.parts, described(variable))

    def _optimizer(self, optimizer: Any) -> Any:
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return _scaling_optimizer, (optimizer.inner_optimizer, scaling_settings(optimizer))
        name = self._placement.name_of(optimizer)
        return _remote_optimizer, (name, optimizer_settings(optimizer))


def dumps(value: Any, placement: Placement) -> tuple[bytes, set[int]]:
    """Return a value pickled for workers, and the numbers of the shared values that it refers to.

    A function travels with all it refers to, also where it stands in a module that workers could import: there its
    model would be another.

    Args:
        value: A function, or what it is called with.
        placement: Moves variables to the servers.

    Raises:
        UsageError: Something in it cannot travel.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, placement)
    try:
        with _by_value(value):
            pickler.dump(value)
    except (TypeError, pickle.PicklingError, AttributeError) as error:
        raise UsageError(
            explain(
                f"A scheduled function, or an argument of it, cannot be sent to workers: {error}.",
                "No worker could run it.",
                "Make files, locks, connections and datasets on the worker: in the function itself, or by "
                "coordinator.create_per_worker_dataset(dataset_fn).",
            )
        ) from error
    return file.getvalue(), pickler.needs


_by_value_lock: Final = threading.RLock()


@contextlib.contextmanager
def _by_value(value: Any) -> Iterator[None]:
    """Let the functions of a function's own module travel as they are, not by name."""
    inner = getattr(inspect.unwrap(value), "__func__", inspect.unwrap(value)) if callable(value) else None
    module = sys.modules.get(inner.__module__) if isinstance(inner, types.FunctionType) else None
    package = getattr(module, "__name__", "").partition(".")[0]
    if module is None or package in _IMPORTED or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    with _by_value_lock:
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _shared_value(number: int) -> Any:
    return current_task().shared_value(number)


def _blank(kind: type) -> Any:
    return object.__new__(kind)


def _remote_variable(parts: tuple[Location, ...], description: Mapping[str, Any]) -> RemoteVariable:
    task = current_task()
    name = parts[0].name
    if name not in task.variables:
        more = remote_state(task.residence, parts)
        task.variables[name] = variable_like(description, RemoteVariable, more)
    return task.variables[name]


def _seed(number: int, description: Mapping[str, Any], value: np.ndarray) -> keras.Variable:
    task = current_task()
    name = f"seed {number}"
    if name not in task.variables:
        own = value.copy()
        own[0] ^= np.asarray((task.stream * _STREAM) & 0xFFFFFFFF, "uint32").astype(own.dtype)
        task.variables[name] = plain_variable_like(description, jnp.asarray(own))
    return task.variables[name]


def _remote_optimizer(name: str, settings: tuple[Any, Any, Any, list[Any]]) -> Any:
    task = current_task()
    if name not in task.optimizers:
        recipe, iterations, rate, targets = settings
        optimizer = fresh_optimizer(recipe)
        set_counters(optimizer, iterations, rate)
        optimizer.remote_name, optimizer.residence, optimizer.companions = name, task.residence, {}
        object.__setattr__(optimizer, "targets", targets)  # Keras would take them for variables of the optimizer's own
        task.optimizers[name] = _applying(optimizer, apply_remotely)
    return task.optimizers[name]


def _scaling_optimizer(inner: Any, settings: tuple[dict[str, Any], Any, Any]) -> Any:
    task = current_task()
    name = f"{inner.remote_name}, scaled"
    if name not in task.optimizers:
        config, scale, counter = settings
        optimizer = keras.optimizers.LossScaleOptimizer(inner, **config)
        set_scaling(optimizer, scale, counter)
        task.optimizers[name] = _applying(optimizer, apply_scaled)
    return task.optimizers[name]


def _applying(optimizer: Any, apply_fn: Callable[..., None]) -> Any:
    """Let both ways of applying an optimizer send gradients."""

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        apply_fn(optimizer, grads, trainable_variables)

    def stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> tuple[list[Any], list[Any]]:
        """Return the values as they were: the new ones come about on the servers."""
        apply_fn(optimizer, grads, None)
        return list(trainable_variables), list(optimizer_variables)

    optimizer.apply, optimizer.stateless_apply = apply, stateless_apply
    return optimizer
