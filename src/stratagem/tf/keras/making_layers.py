"""What Keras 2's layers took when they were made, and what they said of their calls: `weights=`, `output_shape`.

Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/layers/Layer
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import keras
import numpy as np

from stratagem.checkpoint.compat import give
from stratagem.core.errors import InputError
from stratagem.tf.keras.layers.compat import calls_of

_BY_POSITION: Final = ("trainable", "name", "dtype")
"""The arguments of Keras 2's `Layer.__init__` in their order. Behind them stood `dynamic`, which has no effect here."""


def allowed(name: Any) -> Any:
    """Return a name as Keras 3 allows it: a slash becomes an underscore.

    Args:
        name: What a program calls a layer or a variable; what is not text stays as it is.

    Example:
        >>> allowed("block1/conv")
        'block1_conv'
    """
    return name.replace("/", "_") if isinstance(name, str) else name


def taking_old_arguments(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `Layer.__init__`: arguments by position, names with slashes, `weights`, `batch_input_shape`.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs |= dict(zip(_BY_POSITION, args, strict=False))
        kwargs.pop("dynamic", None)
        if isinstance(kwargs.get("trainable"), str):  # of `Sequential(layers, "name")`
            kwargs["name"] = kwargs.pop("trainable")
        if "name" in kwargs:
            kwargs["name"] = allowed(kwargs["name"])
        weights = kwargs.pop("weights", None)
        batch_shape = kwargs.pop("batch_input_shape", None)
        if batch_shape is not None:
            kwargs["input_shape"] = tuple(batch_shape[1:])
        original(self, **kwargs)
        if batch_shape is not None:
            object.__setattr__(self, "batch_input_shape", tuple(batch_shape))
        if weights is not None:
            _begin_with(self, weights)

    return _with_signature(__init__, original)


def taking_integers_of_numpy(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the `__init__` of a layer that asks whether its sizes are Python's integers: NumPy's become those.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *map(_of_python, args), **{name: _of_python(value) for name, value in kwargs.items()})

    return _with_signature(__init__, original)


def _with_signature(wrapper: Callable[..., None], original: Callable[..., None]) -> Callable[..., None]:
    """Give a wrapper the signature of what it wraps, which Keras reads to save what a layer was made with."""
    vars(wrapper)["__signature__"] = inspect.signature(original)
    return wrapper


def _of_python(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


def finding_by_old_names(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Model.get_layer`: in a name a slash may stand where the layer's has an underscore.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def get_layer(self: Any, name: str | None = None, index: int | None = None) -> Any:
        return original(self, allowed(name), index)

    return get_layer


def _begin_with(layer: Any, values: Sequence[Any]) -> None:
    """Let a layer have these weights as soon as it is built.

    Args:
        layer: One that is being made.
        values: Arrays, in the order of its `weights`.
    """
    original_build = layer.build

    @functools.wraps(original_build)
    def build(*args: Any, **kwargs: Any) -> None:
        original_build(*args, **kwargs)
        found = [tuple(np.shape(value)) for value in values]
        needed = [tuple(weight.shape) for weight in layer.weights]
        if found != needed:
            raise InputError(
                f"The layer {layer.name} was given weights of the shapes {found}, and has weights of {needed}.",
                "Its numbers would not be those that the program gave.",
                "Give `weights` one array for each weight, in the order of `layer.weights`.",
            )
        for weight, value in zip(layer.weights, values, strict=True):
            give(weight, np.asarray(value, keras.backend.standardize_dtype(weight.dtype)))

    object.__setattr__(layer, "build", build)


def give_method(model: Any) -> None:
    """Give a `Sequential` an `add` of its own, which begins with the batch size of `batch_input_shape`.

    Args:
        model: A model that is being made.
    """
    if not isinstance(model, keras.Sequential):
        return
    original_add = model.add

    @functools.wraps(original_add)
    def add(layer: Any, *args: Any, **kwargs: Any) -> None:
        shape = getattr(layer, "batch_input_shape", None)
        if shape is not None and not model.layers:
            original_add(keras.layers.InputLayer(batch_shape=shape), *args, **kwargs)
        original_add(layer, *args, **kwargs)

    object.__setattr__(model, "add", add)


class _Derived:
    """An attribute that is computed until the program assigns one of that name.

    Args:
        function: Function of the layer that returns it.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else self._function(layer)


def _input_shape(layer: Any) -> Any:
    """The shape of what a layer takes (`tf.keras.layers.Layer.input_shape`)."""
    return _shapes(layer, layer.input)


def _output_shape(layer: Any) -> Any:
    """The shape of what a layer returns (`tf.keras.layers.Layer.output_shape`)."""
    return _shapes(layer, layer.output)


def _shapes(layer: Any, tensors: Any) -> Any:
    if isinstance(layer, keras.layers.InputLayer):
        return [tuple(layer.batch_shape)]  # a list, in Keras 2
    return keras.tree.map_structure(lambda each: tuple(each.shape), tensors)


class OldLayer:
    """A base of Keras's layers, with attributes of Keras 2."""

    input_shape = _Derived(_input_shape)
    output_shape = _Derived(_output_shape)

    def get_input_at(self, node_index: int) -> Any:
        """Return what the layer took in one of its symbolic calls.

        Args:
            node_index: Which of them.
        """
        return _one_or_all(calls_of(self)[node_index].input_tensors)

    def get_output_at(self, node_index: int) -> Any:
        """Return what the layer returned in one of its symbolic calls.

        Args:
            node_index: Which of them.
        """
        return _one_or_all(calls_of(self)[node_index].output_tensors)


def _one_or_all(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else list(tensors)
