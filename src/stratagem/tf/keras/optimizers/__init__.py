"""`tf.keras.optimizers`: Keras's."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "experimental": "stratagem.tf.keras.optimizers.experimental",
    "legacy": "stratagem.tf.keras.optimizers.legacy",
    "schedules": "stratagem.tf.keras.optimizers.schedules",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.optimizers")
