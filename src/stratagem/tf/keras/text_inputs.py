"""Models whose inputs are text: lookups on `tf.keras.Input(dtype="string")`, as programs write preprocessing.

Text is no number that a device could hold, so such a model computes on the host, operation by operation. It belongs in
a dataset (`dataset.map(lambda x, y: (preprocess(x), y))`), or before `predict`; `fit` trains models of numbers.
Source of the semantics: https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

from __future__ import annotations

from typing import Any, Final

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import text
from stratagem.data.structure import encoded
from stratagem.tf.keras.layers.compat import is_functional, outputs_of


class _Looking(keras.Operation):
    """A lookup in the graph of a model.

    Args:
        lookup: It.
        name: The name of the operation; None for that of the lookup.
    """

    def __init__(self, lookup: Any, name: str | None = None) -> None:
        super().__init__(name=name or lookup.name)
        self.lookup = lookup

    def call(self, inputs: Any) -> Any:
        return self.lookup(inputs)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        shape, dtype = self.lookup.output_spec(inputs.shape)
        return keras.KerasTensor(shape, dtype)

    def get_config(self) -> dict[str, Any]:
        """Return what the operation is made anew of, where a model is saved, or sent to a worker.

        Raises:
            InputError: The lookup has a function, of which a file holds nothing.
        """
        state = {name: value for name, value in vars(self.lookup).items() if name not in _DERIVED}
        functions = [name.strip("_") for name, value in state.items() if callable(value)]
        if functions:
            raise InputError(
                f"A {type(self.lookup).__name__} with a function as {functions[0]} is in a model that is to be saved.",
                "Save the rest of the model, and look up in dataset.map.",
            )
        state["_weights"] = None if state["_weights"] is None else np.asarray(state["_weights"]).tolist()
        return {"name": self.name, "kind": type(self.lookup).__name__, "state": state}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> _Looking:
        """Return the operation of a configuration."""
        state = dict(config["state"])
        if state["_weights"] is not None:
            state["_weights"] = np.asarray(state["_weights"], "float32")
        kind: type[text.Lookup] = {each.__name__: each for each in _KINDS}[config["kind"]]
        return cls(text.restored(kind, state), config["name"])


keras.saving.register_keras_serializable("stratagem")(_Looking)

_DERIVED: Final = ("_counts", "_documents", "_numbers", "_seen")
"""What a lookup computes of the rest, or needs while it learns alone."""


class _OnInputs:
    """A base of lookups that also take the inputs of models."""

    def __call__(self, inputs: Any) -> Any:
        """Return the numbers of tokens; for the symbolic input of a model a symbolic tensor."""
        lookup: Any = super()
        return _Looking(self)(inputs) if isinstance(inputs, keras.KerasTensor) else lookup.__call__(inputs)

    def __reduce__(self) -> Any:
        return text.plain, (type(self).__mro__[2], vars(self))  # processes that read data import no Keras


class StringLookup(_OnInputs, text.StringLookup):
    """Numbers for words (`tf.keras.layers.StringLookup`); see `stratagem.data.StringLookup`."""


class IntegerLookup(_OnInputs, text.IntegerLookup):
    """Consecutive numbers for whole numbers (`tf.keras.layers.IntegerLookup`); see `stratagem.data.IntegerLookup`."""


class TextVectorization(_OnInputs, text.TextVectorization):
    """Numbers for the words of texts (`tf.keras.layers.TextVectorization`); see `stratagem.data.TextVectorization`."""


_KINDS: Final = (StringLookup, IntegerLookup, TextVectorization)


def takes_text(model: Any) -> bool:
    """Whether a model was made of symbolic inputs of which one is text."""
    return is_functional(model) and any(each.dtype == "string" for each in model.inputs)


def are_symbols(inputs: Any) -> bool:
    """Whether there are symbolic tensors among the inputs of a call."""
    return any(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten(inputs))


def of_text(model: Any, inputs: Any) -> Any:
    """Return the outputs of a model that takes text, for values.

    As in Keras 2, one element without the axis of the batch gives its outputs without it, and (n,) stands for (n, 1).

    Args:
        model: The model.
        inputs: Its inputs, in their structure or, where there is one, alone.
    """
    values, are_alone = [], False
    for value, symbol in zip(keras.tree.flatten(inputs), model.inputs, strict=True):
        array = value if hasattr(value, "shape") else encoded(value)
        if len(np.shape(array)) == len(symbol.shape) - 1:
            is_column = symbol.shape[-1] == 1
            are_alone = are_alone or not is_column
            array = np.expand_dims(array, -1 if is_column else 0)
        values.append(array)
    outputs = keras.Function(model.inputs, outputs_of(model))(values)
    return keras.tree.map_structure(lambda each: each[0], outputs) if are_alone else outputs
