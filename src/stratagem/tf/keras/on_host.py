"""Models with lookups in their graph: which part of one computes on the host, before the step that devices run.

Text is no number that a device could hold. So the graph of a functional model, or of a `Sequential`, is divided: the
host looks up, and computes what lookups take; the step begins with what was looked up. Models in the graph are divided
in the same way. `fit` and its siblings look up for each global batch (`feed.on_host`), a call of the model for what it
is given.
Sources of the semantics: https://www.tensorflow.org/tutorials/keras/text_classification,
https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import keras
import numpy as np

from stratagem.core.errors import InputError, UsageError
from stratagem.data.structure import encoded
from stratagem.tf.keras.host_layer import HostLayer
from stratagem.tf.keras.layers.compat import graph_of, in_context, nodes_of, outputs_of

_NAMES: Final = re.compile(r"(\d+ )*(looked up \d+ \d+|input \d+)")
"""Names of values with which a step begins: those of models in the graph have their number before."""


class HostPart:
    """The graph of a model, divided: calls of operations on the host, and in the step.

    Args:
        graph: A functional model.

    Attributes:
        has_lookups: Whether there is a lookup in the graph.
        is_all: Whether everything is computed on the host: a model of lookups alone.
        fault: Why the graph cannot be divided; None where it can.
    """

    def __init__(self, graph: Any) -> None:
        self._nodes = nodes_of(graph)
        self._inputs = list(graph.inputs)
        self._outputs = outputs_of(graph)
        self._makers = {id(tensor): number for number, node in enumerate(self._nodes) for tensor in node.outputs}
        self.has_lookups = any(_is_on_host(node) or _is_divided(node) for node in self._nodes)
        self.fault: str | None = None
        self._kept: set[int] = set()  # calls on the host whose results the step takes
        self._divided: set[int] = set()  # calls of models that are divided themselves
        self._in_step: set[int] = set()
        self._on_host: set[int] = set()
        self._taken: set[int] = set()  # inputs that the step takes
        if self.has_lookups:
            self._put_on_host(self._put_in_step())
        self.is_all = self.has_lookups and not (self._in_step or self._divided or self._taken)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Leave it behind where its model is sent: it knows the tensors of this one."""
        return type(None), ()

    def _put_in_step(self) -> list[Any]:
        """Note what the step computes, from the outputs back to lookups; return the tensors that these take."""
        ahead, of_host = keras.tree.flatten(self._outputs), []
        while ahead:
            tensor = ahead.pop()
            number = self._makers.get(id(tensor))
            if number is None:
                self._taken.add(next(place for place, each in enumerate(self._inputs) if each is tensor))
                if tensor.dtype == "string":
                    self.fault = f"its input {tensor.name!r} is text that no layer looks up"
                continue
            node = self._nodes[number]
            if number in self._kept | self._divided | self._in_step:
                continue
            if _is_on_host(node) or _is_divided(node):
                (self._kept if _is_on_host(node) else self._divided).add(number)
                of_host += node.input_tensors
                if tensor.dtype == "string":
                    self.fault = f"{node.operation.name!r} gives text to the rest of the model"
            else:
                self._in_step.add(number)
                ahead += node.input_tensors
        return of_host

    def _put_on_host(self, ahead: list[Any]) -> None:
        """Note what the host computes for lookups of the step: other lookups, and functions without weights."""
        while ahead:
            number = self._makers.get(id(ahead.pop()))
            if number is None or number in self._on_host:
                continue
            node = self._nodes[number]
            if _is_divided(node) or (not _is_on_host(node) and getattr(node.operation, "weights", ())):
                self.fault = f"a lookup takes the result of {node.operation.name!r}, which has weights"
            self._on_host.add(number)
            ahead += node.input_tensors

    def compute(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return what the step begins with.

        Args:
            values: Of the model's inputs, in their order.
        """
        values = list(values)
        known = {id(tensor): value for tensor, value in zip(self._inputs, values, strict=True)}
        found = {f"input {place}": values[place] for place in self._taken}
        for number, node in enumerate(self._nodes):
            if number in self._divided:
                inner = of_values(node.operation, *node.arguments.fill_in(known)[0])
                found |= {f"{number} {name}": value for name, value in inner.items()}
            elif number in self._on_host | self._kept:
                arguments, named = node.arguments.fill_in(known)
                outputs = keras.tree.flatten(node.operation(*arguments, **named))
                known |= dict(zip(map(id, node.outputs), outputs, strict=True))
                if number in self._kept:
                    found |= {f"looked up {number} {i}": output for i, output in enumerate(outputs)}
        return found

    def run(self, found: Mapping[str, Any], **context: Any) -> Any:
        """Return the model's outputs.

        Args:
            found: What `compute` returned.
            context: What operations are told of the call, such as `training`.
        """
        convert = keras.ops.convert_to_tensor
        known = {}
        for place in self._taken:
            tensor = self._inputs[place]
            known[id(tensor)] = convert(found[f"input {place}"], dtype=tensor.dtype)
        for number, node in enumerate(self._nodes):
            if number in self._kept:
                outputs = [convert(found[f"looked up {number} {i}"]) for i in range(len(node.outputs))]
            elif number in self._divided:
                own = f"{number} "
                inner = {name.removeprefix(own): value for name, value in found.items() if name.startswith(own)}
                outputs = in_context(node.operation, **context)(inner)
            elif number in self._in_step:
                arguments, named = node.arguments.fill_in(known)
                outputs = in_context(node.operation, **context)(*arguments, **named)
            else:
                continue
            known |= dict(zip(map(id, node.outputs), keras.tree.flatten(outputs), strict=True))
        return keras.tree.map_structure(lambda tensor: known[id(tensor)], self._outputs)


def _is_divided(node: Any) -> bool:
    """Whether an operation is a model of which a part is on the host."""
    part = _part_of(node.operation)
    return part is not None and not part.is_all


def _is_on_host(node: Any) -> bool:
    """Whether an operation is a lookup, or a model of lookups alone."""
    part = _part_of(node.operation)
    return isinstance(node.operation, HostLayer) or (part is not None and part.is_all)


_PART: Final = "_stratagem_host_part"
"""Attribute of a functional model: its outputs when it was looked at, as others may be put behind them; and its part.
A table of all models would hold them for ever, as a part refers to its model."""


def _part_of(model: Any) -> HostPart | None:
    """Return the division of a model; None where there is no graph with a lookup in it."""
    graph = graph_of(model)
    if graph is None:
        return None
    outputs, part = vars(graph).get(_PART, (None, None))
    if part is None or outputs is not graph.outputs:
        part = HostPart(graph)
        object.__setattr__(graph, _PART, (graph.outputs, part))
        if part.has_lookups:
            object.__setattr__(graph, "call", functools.partial(_call, graph))
            graph.input_spec = None  # a step calls it with what was looked up
    return part if part.has_lookups else None


def _call(graph: Any, inputs: Any, training: bool | None = None, mask: Any = None, **context: Any) -> Any:
    """Be the `call` of a functional model with lookups: of what was looked up, in a step."""
    part = _part_of(graph)
    if part is None or not is_of_host(inputs):
        return type(graph).call(graph, inputs, training=training, mask=mask, **context)
    return part.run(inputs, training=training, **context)


def begins_on_host(model: Any) -> bool:
    """Whether a part of a model computes on the host; also of a `Sequential` that has not been built."""
    if isinstance(model, keras.Sequential) and graph_of(model) is None:
        return bool(model.layers) and (isinstance(model.layers[0], HostLayer) or begins_on_host(model.layers[0]))
    return _part_of(model) is not None


def is_of_host(inputs: Any) -> bool:
    """Whether the inputs of a call are what the host has computed, with which a step begins."""
    if not isinstance(inputs, dict) or not inputs:
        return False
    return all(isinstance(name, str) and _NAMES.fullmatch(name) for name in inputs)


def are_symbols(inputs: Any) -> bool:
    """Whether there are symbolic tensors among the inputs of a call."""
    return any(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten(inputs))


def host_part(model: Any, example: Any) -> Callable[[Any], dict[str, Any]]:
    """Return the function of a batch of inputs that the host computes before the step.

    Args:
        model: A model that begins on the host; a `Sequential` that has not been built is built.
        example: Inputs, or something of their shapes; None where they are not known.

    Raises:
        UsageError: The model cannot be divided, or the shape of its input is not known.
    """
    part = _built(model, example)
    if part.fault is not None:
        raise UsageError(
            f"Model {model.name!r} looks up text, and {part.fault}.",
            "fit, evaluate and predict look text up on the host, before the step that devices run.",
            "Give them a model without that part, and call the rest separately: rest(model.predict(x)).",
        )
    return functools.partial(of_values, model)


def of_values(model: Any, inputs: Any) -> dict[str, Any]:
    """Return what a step begins with, for inputs of a model."""
    return _built(model, inputs).compute(_in_order(model, inputs)[0])


def outputs_for(model: Any, inputs: Any, **context: Any) -> Any:
    """Return the outputs of a model that begins on the host, for values.

    As in Keras 2, one element without the axis of the batch gives its outputs without it, and (n,) stands for (n, 1).

    Args:
        model: The model.
        inputs: Its inputs.
        context: Other arguments of the call.
    """
    part = _built(model, inputs)
    values, is_alone = _in_order(model, inputs)
    if part.is_all or part.fault is not None:
        graph = graph_of(model)
        outputs = keras.Function(graph.inputs, outputs_of(graph))(values)
    else:
        outputs = model(part.compute(values), **context)
    return keras.tree.map_structure(lambda each: each[0], outputs) if is_alone else outputs


def _built(model: Any, example: Any) -> HostPart:
    if graph_of(model) is None:
        shape = getattr(encoded(example) if isinstance(example, list | tuple | str | bytes) else example, "shape", None)
        if shape is None:
            raise UsageError(
                f"Model {model.name!r} begins with a lookup, and the shape of its input is not known.",
                "Let it begin with tf.keras.Input(shape=(1,), dtype=tf.string).",
            )
        model.build((None, *shape[1:]))
    part = _part_of(model)
    assert part is not None
    return part


def _in_order(model: Any, inputs: Any) -> tuple[list[Any], bool]:
    """Return values for the inputs of a model, in their order, and whether they are those of one element alone."""
    graph = graph_of(model)
    if isinstance(inputs, dict):
        expected = graph.input
        names = sorted(expected) if isinstance(expected, dict) else [each.name for each in graph.inputs]
        missing = [name for name in names if name not in inputs]
        if missing:
            raise InputError(
                f"Model {model.name!r} has an input {missing[0]!r}, but was given {sorted(inputs)}.",
                "Give each input under its name.",
            )
        inputs = [inputs[name] for name in names]
    values, is_alone = [], False
    flat = [inputs] if _is_plain_list(inputs) else keras.tree.flatten(inputs)
    for value, symbol in zip(flat, graph.inputs, strict=True):
        array = value if hasattr(value, "shape") else encoded(value)
        axes, expected = len(np.shape(array)), len(symbol.shape)
        if axes == expected - 1:
            is_column = symbol.shape[-1] == 1 and axes > 0
            is_alone = is_alone or not is_column
            array = np.expand_dims(array, -1 if is_column else 0)
        elif axes == expected + 1 and np.shape(array)[-1] == 1:
            array = array[..., 0]
        values.append(array)
    return values, is_alone


def _is_plain_list(inputs: Any) -> bool:
    """Whether the input of a call is one list of text, not several inputs."""
    return isinstance(inputs, list | tuple) and bool(inputs) and isinstance(inputs[0], str | bytes)
