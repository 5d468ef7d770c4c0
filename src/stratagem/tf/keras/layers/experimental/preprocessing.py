"""`tf.keras.layers.experimental.preprocessing`: `tf.keras.layers` by its old name."""

from __future__ import annotations

from stratagem.tf.keras.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.tf.keras.layers")
