"""Methods of Keras 2 metrics, and Keras 2's order of arguments in `__init__` and `add_weight`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from stratagem.program.tracing import read


class _Variables:
    """An attribute with a metric's variables. A metric may have another attribute of its name: it defines no setter."""

    def __get__(self, metric: Any, kind: type) -> Any:
        return self if metric is None else metric.variables


class OldMetric:
    """A base of Keras's metrics, with names of Keras 2; a program's own metrics may be as in Keras 2.

    Attributes:
        weights: The variables. A metric was a layer in Keras 2.
    """

    weights = _Variables()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt(cls)

    def reset_states(self) -> None:
        """Reset the state: the old name of `reset_state`."""
        metric: Any = self
        metric.reset_state()


class _NamedFirst(keras.metrics.Metric):
    """The base of a program's own metrics: `super().__init__(name, dtype)` means what it did in Keras 2."""

    def __init__(self, name: Any = None, dtype: Any = None) -> None:
        if _is_dtype(name) and not _is_dtype(dtype):  # Keras 3's own order
            name, dtype = dtype, name
        super().__init__(dtype=dtype, name=name)


def _is_dtype(value: Any) -> bool:
    if value is None:
        return False
    try:
        keras.backend.standardize_dtype(value)
    except ValueError:
        return False
    return True


def adapt(cls: Any) -> None:
    """Let a metric of the program's own be as in Keras 2.

    It names itself and its weights first, begins anew by `reset_states`, and its result may be one of its weights.

    Args:
        cls: A metric; those of Keras stay as they are.
    """
    keras_metric = keras.metrics.Metric
    if not cls.__module__.startswith("keras.") and cls is not _NamedFirst:
        cls.__bases__ = tuple(_NamedFirst if base is keras_metric else base for base in cls.__bases__)
        if cls.add_weight is keras_metric.add_weight:
            cls.add_weight = naming_first(keras_metric.add_weight)
        if cls.reset_state is keras_metric.reset_state:
            cls.reset_state = _calling_old_reset(keras_metric.reset_state)
        if inspect.isfunction(cls.__dict__.get("result")):
            cls.result = _reading_variables(cls.result)
    for each in cls.__subclasses__():
        adapt(each)


def _calling_old_reset(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `Metric.reset_state`: it may have its `reset_states` in the old name."""

    @functools.wraps(original)
    def reset_state(self: Any) -> None:
        own = type(self).reset_states
        if own is OldMetric.reset_states or self.__dict__.get("_resetting"):
            original(self)
            return
        object.__setattr__(self, "_resetting", True)  # it may call this method in turn
        try:
            own(self)
        finally:
            object.__delattr__(self, "_resetting")

    return reset_state


def _reading_variables(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a metric's `result`: a step returns values, which Keras makes tensors of under TensorFlow alone."""

    @functools.wraps(original)
    def result(self: Any, *args: Any, **kwargs: Any) -> Any:
        return read(original(self, *args, **kwargs))

    return result


def naming_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `add_weight`, whose first argument was the name: `add_weight("total", initializer="zeros")`.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            kwargs["name"], args = args[0], args[1:]
            if not args and "shape" not in kwargs:
                kwargs["shape"] = ()
        return original(self, *args, **kwargs)

    return add_weight
