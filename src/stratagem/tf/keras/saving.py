"""`tf.keras.saving`: Keras's; models are saved to and loaded from folders too."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "load_model": "stratagem.tf.keras.folders:load_model",
    "save_model": "stratagem.tf.keras.folders:save_model",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.saving")
