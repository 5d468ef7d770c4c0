"""Arguments that layers of Keras 2 took when they and their weights were made, and `output_shape` of their calls.

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
from stratagem.tf.keras.old_metrics import naming_first

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
        if type(self).add_weight is keras.Layer.add_weight:
            object.__setattr__(self, "add_weight", functools.partial(_add_weight, self))
        if type(self).add_variable is keras.Layer.add_variable:
            object.__setattr__(self, "add_variable", functools.partial(_add_variable, self))
        if batch_shape is not None:
            object.__setattr__(self, "batch_input_shape", tuple(batch_shape))
        if weights is not None:
            _begin_with(self, weights)

    return _with_signature(__init__, original)


def _with_signature(wrapper: Callable[..., None], original: Callable[..., None]) -> Callable[..., None]:
    """Give a wrapper the signature of what it wraps, which Keras reads to save what a layer was made with."""
    vars(wrapper)["__signature__"] = inspect.signature(original)
    return wrapper


def _of_python(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else value


def _get_layer(model: Any, name: str | None = None, index: int | None = None) -> Any:
    return keras.Model.get_layer(model, allowed(name), index)


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
                f"The layer {layer.name} was given weights of the shapes {found}, but its weights have the shapes "
                f"{needed}.",
                "The layer would not have the numbers that the program gave.",
                "Give `weights` one array for each weight, in the order of `layer.weights`.",
            )
        for weight, value in zip(layer.weights, values, strict=True):
            give(weight, np.asarray(value, keras.backend.standardize_dtype(weight.dtype)))

    object.__setattr__(layer, "build", build)


def give_method(model: Any) -> None:
    """Give a model methods of its own: a `get_layer` that takes names with slashes, and an `add`.

    The `add` of a `Sequential` begins with the batch size of `batch_input_shape`.

    Args:
        model: A model that is being made.
    """
    if type(model).get_layer is keras.Model.get_layer:
        object.__setattr__(model, "get_layer", functools.partial(_get_layer, model))
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


class _Noted(tuple[Any, ...]):
    """A shape that a layer has of its last symbolic call, not of the program."""


def _is_noted(shape: Any) -> bool:
    return isinstance(shape[0] if isinstance(shape, list) and shape else shape, _Noted)


def note_shapes(layer: Any, inputs: Any, outputs: Any) -> None:
    """Let a layer say what shapes it took and returned in a symbolic call: `layer.output_shape` of Keras 2.

    A class or a program that has an attribute of that name keeps it.

    Args:
        layer: What was called.
        inputs: What it was given first.
        outputs: What it returned.
    """
    for name, tensors in (("input_shape", inputs), ("output_shape", outputs)):
        leaves = keras.tree.flatten(tensors)
        before = vars(layer).get(name)
        is_free = not hasattr(type(layer), name) and (before is None or _is_noted(before))
        if is_free and leaves and all(isinstance(leaf, keras.KerasTensor) for leaf in leaves):
            shapes = [_Noted(leaf.shape) for leaf in leaves]
            object.__setattr__(layer, name, shapes[0] if isinstance(tensors, keras.KerasTensor) else shapes)


_OF_WEIGHTS: Final = ("shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
"""The arguments of Keras 2's `Layer.add_weight` by position, behind the name."""

_IN_KERAS_3: Final = ("shape", "initializer", "dtype")
_OF_TENSORFLOW: Final = ("collections", "getter", "partitioner", "use_resource")
"""Arguments of `add_weight` that said how TensorFlow was to keep the variable."""


_named_first: Final = naming_first(keras.Layer.add_weight)


def _add_weight(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `Layer.add_weight` does, with Keras 2's order behind a name, a shape of one number, its hints."""
    kwargs = {name: value for name, value in kwargs.items() if name not in _OF_TENSORFLOW}
    if args and isinstance(args[0], str):
        kwargs |= dict(zip(_OF_WEIGHTS, args[1:], strict=False))
        args = args[:1]
    elif args:
        kwargs |= dict(zip(_IN_KERAS_3, args, strict=False))
        args = ()
    args = tuple(map(allowed, args))
    if "name" in kwargs:
        kwargs["name"] = allowed(kwargs["name"])
    if "experimental_autocast" in kwargs:
        kwargs["autocast"] = kwargs.pop("experimental_autocast")
    if kwargs.pop("synchronization", None) == "on_read":
        raise InputError(
            "add_weight was given synchronization=ON_READ.",
            "Keras 3's layers have no weights with a value for each replica.",
            "Write tf.Variable(..., trainable=False, synchronization=..., aggregation=...) as an attribute.",
        )
    if isinstance(kwargs.get("shape"), int | np.integer):
        kwargs["shape"] = (kwargs["shape"],)
    return _named_first(layer, *args, **kwargs)


def _add_variable(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what `Layer.add_variable` does; in Keras 2 it was `add_weight`, whose first argument is the name."""
    if args and not isinstance(args[0], str):  # the shape, as in Keras 3
        return keras.Layer.add_variable(layer, *args, **kwargs)
    return layer.add_weight(*args, **kwargs)
