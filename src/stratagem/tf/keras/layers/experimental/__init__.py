"""`tf.keras.layers.experimental`: old spellings."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "EinsumDense": "keras.layers:EinsumDense",
    "SyncBatchNormalization": "stratagem.tf.keras.layers.synchronized:SyncBatchNormalization",
    "preprocessing": "stratagem.tf.keras.layers.experimental.preprocessing",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
