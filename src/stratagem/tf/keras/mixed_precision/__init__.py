"""`tf.keras.mixed_precision`: Keras's own."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "experimental": "stratagem.tf.keras.mixed_precision.experimental",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.mixed_precision")
