"""Arguments of Keras 2's layers that Keras 3 refuses: when a layer is called, and when it makes weights."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import keras
import numpy as np

from stratagem.core import patches
from stratagem.core.errors import InputError
from stratagem.core.patches import Extent
from stratagem.tf.keras.layers.compat import input_shape_of
from stratagem.tf.keras.making_layers import allowed
from stratagem.tf.keras.old_metrics import naming_first


def give_method(model: Any) -> None:
    """Give a `Sequential` a `build` of its own, which passes over the shape where the model has an input.

    Args:
        model: A model that is being made.
    """
    if not isinstance(model, keras.Sequential):
        return
    original_build = model.build

    @functools.wraps(original_build)
    def build(input_shape: Any = None) -> None:
        original_build(input_shape_of(model) or input_shape)

    object.__setattr__(model, "build", build)


def taking_arguments_by_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Layer.__call__`: `layer(x, True, mask)`, and numbers of Python among inputs.

    Layers of the program compute with TensorFlow's rules also where nothing is differentiated, as in a functional model
    that is being made: `scores * (-2**32 + 1)` is an error of JAX's.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = by_name(self, args, kwargs)
        if patches.holds_here(Extent.DERIVATIVES) or not _is_of_program(type(self)):
            return original(self, *args, **kwargs)
        with patches.during(Extent.DERIVATIVES):
            return original(self, *args, **kwargs)

    return __call__


@functools.cache
def _is_of_program(kind: type) -> bool:
    """Whether a layer computes what the program wrote."""
    return issubclass(kind, keras.layers.Lambda) or not kind.__module__.startswith("keras.")


def by_name(layer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as Keras 3 takes them: by position tensors alone.

    Args:
        layer: What is called.
        args: Its arguments by position. Numbers in the first become tensors, as in Keras 2.
        kwargs: Those by name.

    Returns:
        Arguments by position, and those by name: from the first that holds anything else than tensors on.
    """
    named = dict(kwargs)
    if len(args) > 1:
        place = next((place for place, arg in enumerate(args) if place and _has_others(arg)), len(args))
        names = _names_of(layer)[place : len(args)]
        if len(names) == len(args) - place:
            named |= dict(zip(names, args[place:], strict=True))
            args = args[:place]
    if args and _has_numbers(args[0]):
        args = (keras.tree.map_structure(_as_tensor, args[0]), *args[1:])
    return args, named


def _names_of(layer: Any) -> list[str]:
    """Return the names of the arguments of `call` that may be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in inspect.signature(layer.call).parameters.values() if each.kind in kinds]


def _has_others(argument: Any) -> bool:
    """Whether an argument is, or holds, what is neither a tensor nor None."""
    if argument is None or hasattr(argument, "dtype"):
        return False
    return any(leaf is not None and not hasattr(leaf, "dtype") for leaf in keras.tree.flatten(argument))


def _has_numbers(inputs: Any) -> bool:
    """Whether inputs are, or hold, numbers of Python."""
    if hasattr(inputs, "dtype"):
        return False
    return any(isinstance(leaf, int | float) for leaf in keras.tree.flatten(inputs))


def _as_tensor(leaf: Any) -> Any:
    return keras.ops.convert_to_tensor(leaf) if isinstance(leaf, int | float) else leaf


_OF_WEIGHTS: Final = ("shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
"""The arguments of Keras 2's `Layer.add_weight` by position, behind the name."""

_IN_KERAS_3: Final = ("shape", "initializer", "dtype")
_OF_TENSORFLOW: Final = ("collections", "getter", "partitioner", "use_resource")
"""Arguments of `add_weight` that said how TensorFlow was to keep the variable."""


def adding_by_old_arguments(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Layer.add_weight`: Keras 2's order behind a name, a shape of one number, its hints.

    Args:
        original: Keras's `add_weight`.
    """
    named_first = naming_first(original)

    @functools.wraps(original)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
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
        return named_first(self, *args, **kwargs)

    return add_weight
