"""Lookups of words as layers: `tf.keras.layers.TextVectorization` and its like, in models and in functions of datasets.

Source of the semantics: https://keras.io/api/layers/preprocessing_layers/
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import lookup, text
from stratagem.tf.keras.host_layer import HostLayer


class LookupLayer(HostLayer):
    """Layer of a lookup.

    Args:
        arguments: Those of the lookup.
        named: The same by name; of a layer, `name`.
    """

    _kind: ClassVar[type[lookup.Lookup]]
    _dtype_of_inputs: ClassVar[str] = "string"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        dtype = "int64" if named.get("invert") else self._dtype_of_inputs
        super().__init__(dtype, named.pop("name", None))
        self.function = self._kind(*arguments, name=self.name, **named)

    @property
    def lookup(self) -> lookup.Lookup:
        """The table from tokens to numbers."""
        return self.function

    # As files hold it ----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """Return the configuration from which a saved model makes the layer again.

        Raises:
            InputError: The lookup has a function without a name, which a file cannot hold.
        """
        state = {name: value for name, value in vars(self.lookup).items() if name not in lookup.DERIVED}
        for name, value in state.items():
            if not callable(value):
                continue
            if getattr(value, "__name__", "<lambda>") == "<lambda>":
                raise InputError(
                    f"A {type(self).__name__} with a function as {name.strip('_')} is in a model that is being saved.",
                    "Write the function with def, under @tf.keras.utils.register_keras_serializable(). Or save the "
                    "rest of the model, and look text up in dataset.map.",
                )
            state[name] = keras.saving.serialize_keras_object(value)
        state["_weights"] = None if state["_weights"] is None else np.asarray(state["_weights"]).tolist()
        return {"name": self.name, "state": state}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LookupLayer:
        """Return the layer of a configuration."""
        state = {
            name: keras.saving.deserialize_keras_object(value) if isinstance(value, dict) else value
            for name, value in config["state"].items()
        }
        if state["_weights"] is not None:
            state["_weights"] = np.asarray(state["_weights"], "float32")
        layer = cls(name=config["name"])
        layer.function = lookup.restored(cls._kind, state)
        return layer

    # What lookups have ---------------------------------------------------------------------------

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the vocabulary; see `stratagem.data.StringLookup`."""
        self.lookup.adapt(data, batch_size, steps)

    def reset_state(self) -> None:
        """Forget the tokens that were given to `update_state`."""
        self.lookup.reset_state()

    def update_state(self, data: Any) -> None:
        """Count the tokens of a batch."""
        self.lookup.update_state(data)

    def finalize_state(self) -> None:
        """Make the vocabulary from the counted tokens."""
        self.lookup.finalize_state()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Use these tokens, in the order of their numbers."""
        self.lookup.set_vocabulary(vocabulary, idf_weights)

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the tokens in the order of their numbers."""
        return self.lookup.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Return how many numbers there are."""
        return self.lookup.vocabulary_size()

    vocab_size = vocabulary_size

    @property
    def max_tokens(self) -> int | None:
        """The greatest possible number of numbers."""
        return self.lookup.max_tokens

    @property
    def output_mode(self) -> str:
        """The form of the result for tokens."""
        return self.lookup.output_mode

    @property
    def invert(self) -> bool:
        """Whether numbers are looked up, and tokens returned."""
        return self.lookup.invert


@keras.saving.register_keras_serializable("stratagem")
class StringLookup(LookupLayer):
    """Numbers for words (`tf.keras.layers.StringLookup`); see `stratagem.data.StringLookup`."""

    _kind = lookup.StringLookup


@keras.saving.register_keras_serializable("stratagem")
class IntegerLookup(LookupLayer):
    """Consecutive numbers for whole numbers (`tf.keras.layers.IntegerLookup`); see `stratagem.data.IntegerLookup`."""

    _kind = lookup.IntegerLookup
    _dtype_of_inputs = "int64"


@keras.saving.register_keras_serializable("stratagem")
class TextVectorization(LookupLayer):
    """Numbers for the words of texts (`tf.keras.layers.TextVectorization`); see `stratagem.data.TextVectorization`."""

    _kind = text.TextVectorization
