"""`tf.keras.callbacks`: Keras's, and those of ours that strategies need."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
