"""Bins for words and numbers as layers: `tf.keras.layers.Hashing` and `HashedCrossing`.

Source of the semantics: https://keras.io/api/layers/preprocessing_layers/categorical/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras

from stratagem.data import hashing
from stratagem.tf.keras.host_layer import HostLayer


class HashingLayer(HostLayer):
    """Layer that puts values into bins.

    Args:
        arguments: Those of the function of datasets.
        named: The same by name; of a layer, `name`.
    """

    _kind: ClassVar[Callable[..., hashing.Hashed]]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        function = self._kind(*arguments, **named)
        super().__init__(function.dtype, named.get("name"))
        self.function = function

    def get_config(self) -> dict[str, Any]:
        """Return the configuration from which a saved model makes the layer again."""
        return {"name": self.name, **self.function.get_config()}


@keras.saving.register_keras_serializable("stratagem")
class Hashing(HashingLayer):
    """Bins for values (`tf.keras.layers.Hashing`); see `stratagem.data.Hashing`."""

    _kind = hashing.Hashing


@keras.saving.register_keras_serializable("stratagem")
class HashedCrossing(HashingLayer):
    """Bins for combinations of values (`tf.keras.layers.HashedCrossing`); see `stratagem.data.HashedCrossing`."""

    _kind = hashing.HashedCrossing
