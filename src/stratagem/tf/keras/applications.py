"""`tf.keras.applications`: Keras's own, with its modules."""

from __future__ import annotations

from stratagem.tf.keras.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="keras.applications")
