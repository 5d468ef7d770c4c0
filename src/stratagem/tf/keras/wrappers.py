"""`tf.keras.wrappers`: Keras's own."""

from __future__ import annotations

from stratagem.tf.keras.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="keras.wrappers")
