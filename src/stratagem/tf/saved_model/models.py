"""Keras models that were loaded to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import keras

from stratagem.loop.function import function
from stratagem.mesh.mesh import Tree

DEFAULT_SERVING_SIGNATURE_DEF_KEY: Final = "serving_default"
"""The name of the signature that a model has by itself."""


class LoadedModel:
    """A loaded model that predicts. To train a model, load it with `tf.keras.models.load_model`.

    Attributes:
        model: The Keras model.
        signatures: The saved signatures. If there are none, the call of the model has the name "serving_default". It
            takes the inputs in order or by name, and returns the outputs by name, as in Keras 2: the names of their
            layers, or "output_1" and so on.

    Args:
        model: The Keras model.
        signatures: The saved signatures.
    """

    def __init__(self, model: Any, signatures: Mapping[str, Any] | None = None) -> None:
        self.model = model
        self._call = function(lambda inputs, training=False: model(inputs, training=training))
        self.signatures = signatures or {DEFAULT_SERVING_SIGNATURE_DEF_KEY: self._by_name}

    def __call__(self, inputs: Tree, training: bool = False) -> Tree:
        """Return the model's outputs."""
        return self._call(inputs, training=training)

    @property
    def variables(self) -> list[Any]:
        """The model's variables."""
        return self.model.variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that training changes."""
        return self.model.trainable_variables

    def _by_name(self, *inputs: Any, **named: Any) -> dict[str, Any]:
        given: Any = named or (inputs[0] if len(inputs) == 1 else list(inputs))
        if named and not isinstance(getattr(self.model, "input", None), dict):
            given = next(iter(named.values())) if len(named) == 1 else list(named.values())
        outputs = self._call(given)
        if isinstance(outputs, dict):
            return outputs
        leaves = keras.tree.flatten(outputs)
        return dict(zip(_names_of_outputs(self.model, len(leaves)), leaves, strict=True))


def _names_of_outputs(model: Any, count: int) -> list[str]:
    """Return the names of the layers that outputs come from, where it is known; as in Keras 2, also where not."""
    if isinstance(model, keras.Sequential):
        return [model.layers[-1].name]
    return getattr(model, "output_names", None) or [f"output_{number}" for number in range(1, count + 1)]
