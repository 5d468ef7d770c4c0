"""Pickling of functions for workers: Keras objects by their attributes, variables by where they live.

A function takes along what it refers to: models, optimizers, metrics. Keras's own pickling would save and load a whole
archive, and make new variables. Here an object travels by its attributes, and all copies of a variable, in all
functions that a worker gets, are one variable:

| what                       | becomes on the worker                                                          |
| -------------------------- | ------------------------------------------------------------------------------ |
| a variable                 | a `RemoteVariable`; on its way it moves to the parameter servers if it was not |
| a seed generator           | one that draws from the stream on the servers (`streams`)                      |
| an optimizer               | one that sends gradients to the servers                                        |
| per-worker values          | this worker's value                                                            |
| a case of `unittest`       | a copy without what its runner keeps in it                                     |
| another Keras object       | a copy with the same attributes                                                |

Only the chief pickles, and only what the chief sent is unpickled.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pickle
import random
import sys
import threading
import types
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import cloudpickle
import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core import by_value, patches
from stratagem.core.advancing import AdvancedByPython
from stratagem.core.changing import Changing
from stratagem.core.errors import UsageError
from stratagem.core.log import announce_once
from stratagem.program.captured_names import captured_by
from stratagem.ps import compat
from stratagem.ps.changes import Location
from stratagem.ps.optimizers import apply_remotely, apply_scaled
from stratagem.ps.placement import Placement
from stratagem.ps.shared import Shared
from stratagem.ps.streams import shared
from stratagem.ps.task import current_task
from stratagem.ps.variables import RemoteVariable, remote_state

_KERAS_OBJECTS: Final = (keras.Operation, keras.metrics.Metric, keras.losses.Loss)
"""Layers are operations, and so are functions in a functional model: both have a place in its graph."""

_OF_THE_CHIEF: Final = frozenset(
    ("train_function", "test_function", "predict_function", "history", "_jax_state", "_eval_epoch_iterator")
)
"""Attributes of a model that its loops on the chief need, and no step on a worker."""


_IMPORTED: Final = frozenset({*sys.stdlib_module_names, "stratagem", "keras", "jax", "numpy"})
"""Packages whose functions hold nothing of the program's; workers import them."""


_BY_NAME: Final = 2
"""Length of what makes a class that is found by name; one that is made anew has a state besides."""


class SharedValue:
    """Stands for a value that workers hold, made on each when it is first needed there."""

    shared: Shared


class Copied:
    """An object that was copied, which workers get again when it has changed.

    Args:
        value: The object.
        attribute: The attribute that tells.
    """

    def __init__(self, value: Any, attribute: str) -> None:
        self._value, self._attribute = value, attribute
        self._told = getattr(value, attribute)

    def is_current(self) -> bool:
        """Whether it has not changed."""
        return getattr(self._value, self._attribute) == self._told


class _Pickler(by_value.Pickler):
    """Pickles for workers; notes which shared values it refers to."""

    def __init__(self, file: io.BytesIO, placement: Placement, modules: Mapping[str, set[str]]) -> None:
        super().__init__(file)
        self._placement = placement
        self._modules = modules
        self.needs: set[Shared] = set()
        self.copied: list[Copied] = []
        """Objects that the program may change meanwhile."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | types.FunctionType):
            reduced = super().reducer_override(obj)
            # A class that travels by value: cloudpickle looks it up by a name of its own, the last argument but one.
            travels = isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > _BY_NAME
            return (_class_of_worker, (reduced[0], *reduced[1]), *reduced[2:]) if travels else reduced
        if isinstance(obj, types.ModuleType) and obj.__name__ in self._modules:
            read = self._modules[obj.__name__]
            return _Module, (obj.__name__,), {name: value for name, value in vars(obj).items() if name in read}
        if isinstance(obj, SharedValue):
            self.needs.add(obj.shared)
            return _shared_value, (obj.shared.number,)
        if isinstance(obj, AdvancedByPython) and isinstance(obj, Iterator):
            raise UsageError(
                f"A {type(obj).__name__}, an iterator over data, was given to coordinator.schedule, or is used in a "
                "function that was.",
                "Each worker would read a copy of it, starting at the same element.",
                "Write iterator = iter(coordinator.create_per_worker_dataset(dataset_fn)), and give that to schedule.",
            )
        if isinstance(obj, np.random.Generator | np.random.RandomState | random.Random):
            announce_once(
                f"A {type(obj).__qualname__} of NumPy or Python travels with a function to workers, as a copy: all "
                "draw the same numbers from it. A tf.random.Generator is one stream for all."
            )
        if isinstance(obj, Changing):
            self.copied.append(Copied(obj, "changes"))
        if isinstance(obj, keras.Variable):
            return self._variable(obj)
        if isinstance(obj, keras.optimizers.Optimizer):
            return self._optimizer(obj)
        if isinstance(obj, keras.random.SeedGenerator):
            self._placement.place([obj.state])
            return _blank, (type(shared(obj)),), vars(obj)
        if isinstance(obj, _KERAS_OBJECTS):
            kept = {k: v for k, v in vars(obj).items() if k not in _OF_THE_CHIEF}
            make = _blank
            if kept.get("built", True) is False:
                make = _unbuilt
                self.copied.append(Copied(obj, "built"))
            return make, (type(obj),), compat.from_the_inputs_on(kept)
        if isinstance(obj, unittest.TestCase):  # its runner has files and locks
            return _blank, (type(obj),), {k: v for k, v in vars(obj).items() if k != compat.OF_THE_RUNNER}
        container = compat.describe_container(obj)
        if container is not None:
            return compat.empty_container, (type(obj),), container, None, None, compat.fill_container
        if isinstance(obj, jax.Array):
            return jnp.asarray, (np.asarray(obj),)
        return super().reducer_override(obj)

    def _variable(self, variable: keras.Variable) -> Any:
        self._placement.place([variable])
        assert isinstance(variable, RemoteVariable)
        return _remote_variable, (type(variable), variable.parts, compat.described(variable))

    def _optimizer(self, optimizer: Any) -> Any:
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return _scaling_optimizer, (optimizer.inner_optimizer, compat.scaling_settings(optimizer))
        name = self._placement.name_of(optimizer)
        return _remote_optimizer, (name, compat.optimizer_settings(optimizer))


def dumps(value: Any, placement: Placement, copied: list[Copied] | None = None) -> tuple[bytes, frozenset[Shared]]:
    """Return a value pickled for workers, and the shared values that it refers to.

    A function travels with all it refers to, also where that stands in modules of the program, which workers could
    import: there a model would be another. A module beside its own that has a lock or the like, and no model,
    is imported by the worker.

    Args:
        value: A function, or what it is called with.
        placement: Moves variables to the servers.
        copied: Gets what the program may change meanwhile.

    Raises:
        UsageError: Something in it cannot travel.
    """
    modules = _modules_of(value)
    needed = {
        name: read for name, read in modules.items() if name == _own_module(value) or _has_keras_objects(name, read)
    }
    cause: Exception | None = None
    for tried in (modules, needed):
        try:
            return _pickled(value, placement, tried, [] if copied is None else copied)
        except _CANNOT_BE_PICKLED as error:
            cause = error
    raise UsageError(
        f"A scheduled function, or an argument of it, cannot be sent to workers: {cause}.",
        "Make files, locks, connections and datasets on the worker: in the function itself, or by "
        "coordinator.create_per_worker_dataset(dataset_fn).",
    ) from cause


_CANNOT_BE_PICKLED: Final = (TypeError, pickle.PicklingError, AttributeError)


def _pickled(
    value: Any, placement: Placement, modules: Mapping[str, set[str]], copied: list[Copied]
) -> tuple[bytes, frozenset[Shared]]:
    file = io.BytesIO()
    pickler = _Pickler(file, placement, modules)
    with _by_value(modules):
        pickler.dump(_Brought(value))
    copied += pickler.copied
    return file.getvalue(), frozenset(pickler.needs)


class _Brought:
    """A value for workers, with what makes Keras and JAX there what they are here.

    A program has TensorFlow's methods and derivatives from its first use of `stratagem.tf` on; a worker may have none.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Any:
        return _second, (_Patches(), self._value)


class _Patches:
    def __reduce__(self) -> Any:
        return _install, tuple(patches.users("stratagem.tf"))


def _install(*users: str) -> None:
    for user in users:
        importlib.import_module(user)


def _second(first: Any, second: Any) -> Any:
    return second


_by_value_lock: Final = threading.RLock()


def _modules_of(value: Any) -> Mapping[str, set[str]]:
    """Return the modules of the program that a function refers to, and the names that it reads of each."""
    if not callable(value):
        return {}
    found = {_own_module(value): set[str](), **captured_by(inspect.unwrap(value)).modules}
    return {name: read for name, read in found.items() if name.partition(".")[0] not in _IMPORTED}


def _own_module(value: Any) -> str:
    inner = getattr(inspect.unwrap(value), "__func__", inspect.unwrap(value)) if callable(value) else None
    return inner.__module__ if isinstance(inner, types.FunctionType) else ""


def _has_keras_objects(module: str, names: Iterable[str]) -> bool:
    held = vars(sys.modules[module]) if module in sys.modules else {}
    return any(isinstance(held.get(name), (keras.Variable, keras.Optimizer, *_KERAS_OBJECTS)) for name in names)


@contextlib.contextmanager
def _by_value(names: Iterable[str]) -> Iterator[None]:
    """Let functions and classes of modules travel as they are, not by name."""
    with _by_value_lock:
        known = cloudpickle.list_registry_pickle_by_value()
        modules = [sys.modules[name] for name in names if name in sys.modules and name not in known]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


class _Module(types.ModuleType):
    """A module of the program with the names that a function reads of it; others come from the worker's own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(self.__name__), name)


def _shared_value(number: int) -> Any:
    return current_task().shared_value(number)


def _class_of_worker(make: Callable[..., type], *arguments: Any) -> type:
    """Return a class of this worker alone.

    Else attributes of the class in the chief's process, where a worker may be a thread, would become the worker's.
    """
    *before, name, extra = arguments
    return make(*before, f"{name} of worker {current_task().stream}", extra)


def _blank(kind: type) -> Any:
    return object.__new__(kind)


def _unbuilt(kind: type) -> Any:
    made = _blank(kind)
    current_task().own_state.came(made)
    return made


def _remote_variable(
    kind: type[RemoteVariable], parts: tuple[Location, ...], description: Mapping[str, Any]
) -> RemoteVariable:
    task = current_task()
    name = " ".join(part.name for part in parts)  # a part may come as a variable of its own
    if name not in task.variables:
        more = remote_state(task.residence, parts)
        task.variables[name] = compat.variable_like(description, kind, more)
    return task.variables[name]


def _remote_optimizer(name: str, settings: tuple[Any, Any, Any, list[Any]]) -> Any:
    task = current_task()
    recipe, iterations, rate, targets = settings
    if name not in task.optimizers:
        optimizer = compat.fresh_optimizer(recipe)
        optimizer.remote_name, optimizer.residence, optimizer.companions = name, task.residence, {}
        compat.set_untracked(optimizer, targets=targets)  # Keras would take them for variables of the optimizer's own
        task.optimizers[name] = _applying(optimizer, apply_remotely)
    compat.set_counters(task.optimizers[name], iterations, rate)  # a schedule may have taken the place of a number
    return task.optimizers[name]


def _scaling_optimizer(inner: Any, settings: tuple[dict[str, Any], Any, Any]) -> Any:
    task = current_task()
    name = f"{inner.remote_name}, scaled"
    if name not in task.optimizers:
        config, scale, counter = settings
        optimizer = keras.optimizers.LossScaleOptimizer(inner, **config)
        compat.set_untracked(optimizer, dynamic_scale=scale, step_counter=counter, built=True)
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
