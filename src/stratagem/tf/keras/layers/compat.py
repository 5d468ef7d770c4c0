"""The only file of this folder that touches private parts of Keras: the graph of a functional model, and its losses.

Checked on Keras 3.15.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import keras
from keras.src.backend import compute_output_spec
from keras.src.models.functional import Functional, operation_fn

__all__ = [
    "compute_output_spec",
    "extend",
    "graph_of",
    "has_losses_of_call",
    "in_context",
    "input_layer_of",
    "input_shape_of",
    "is_functional",
    "nodes_of",
    "outputs_of",
    "without_conversion",
]

_GRAPH: Final = ("_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth", "_outputs", "_outputs_struct")
"""What a functional model knows of its graph behind its inputs."""


def is_functional(model: Any) -> bool:
    """Return whether a model is one of inputs and outputs."""
    return isinstance(model, Functional)


def outputs_of(model: Any) -> Any:
    """Return the structure of symbolic outputs that a functional model was made of."""
    return model._outputs_struct


def has_losses_of_call(model: Any) -> bool:
    """Return whether a model's losses are those that Keras has read in a call, as while it computes the whole loss."""
    return bool(model._losses_override)


def input_shape_of(model: Any) -> Any:
    """Return the shape of the input that a `Sequential` model begins with, None where it has none."""
    first = next(iter(model._layers), None)
    return first.batch_shape if isinstance(first, keras.layers.InputLayer) else None


def extend(model: Any, layer: Callable[[Any], Any]) -> None:
    """Put a layer behind the first output of a functional model.

    Args:
        model: The model.
        layer: Function of the symbolic output that returns the one in its place.
    """
    first, *others = model.outputs
    outputs = keras.tree.pack_sequence_as(model._outputs_struct, [layer(first), *others])
    extended = Functional(model._inputs_struct, outputs)
    for name in _GRAPH:
        object.__setattr__(model, name, getattr(extended, name))
    for each in extended.layers:
        model._tracker.track(each)
    model.train_function = model.test_function = model.predict_function = None  # of the graph as it was


def graph_of(model: Any) -> Any:
    """Return the functional model that a model is, or that a `Sequential` has made of its layers; or None.

    Args:
        model: Anything that is called.
    """
    if isinstance(model, keras.Sequential):
        return model._functional
    return model if isinstance(model, Functional) else None


def nodes_of(graph: Any) -> Sequence[Any]:
    """Return the calls of operations in a functional model's graph, each behind those whose results it takes.

    Each has its `operation`, `arguments.fill_in(values)` for values by the ids of symbolic tensors, `input_tensors`
    and `outputs`.
    """
    by_depth = graph._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [node for node in nodes if node.operation and not node.is_input]


def input_layer_of(tensor: Any) -> Any:
    """Return the layer that a symbolic input comes from."""
    return tensor._keras_history.operation


def in_context(operation: Any, **context: Any) -> Callable[..., Any]:
    """Return an operation that is told the phase: `training`, where it asks for that."""
    return operation_fn(operation, **context)


def without_conversion(layer: Any) -> None:
    """Let a layer's inputs be as they are: Keras would make tensors of JAX of them."""
    layer._convert_input_args = False
    layer._allow_non_tensor_positional_args = True
