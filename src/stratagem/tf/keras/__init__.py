"""`tf.keras`: Keras 3, with what has moved or gone since Keras 2."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
