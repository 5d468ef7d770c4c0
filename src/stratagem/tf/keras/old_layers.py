"""Arguments of Keras 2's layers that Keras 3 refuses: when a layer is called, and when it makes weights."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from stratagem.core import patches
from stratagem.core.patches import Extent
from stratagem.tf.keras.layers.compat import input_shape_of
from stratagem.tf.keras.making_layers import note_shapes


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
            outputs = original(self, *args, **kwargs)
        else:
            with patches.during(Extent.DERIVATIVES):
                outputs = original(self, *args, **kwargs)
        if args:
            note_shapes(self, args[0], outputs)
        return outputs

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
