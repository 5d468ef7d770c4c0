"""`tf.keras.layers`: Keras's, and lookups of words that need no TensorFlow."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
