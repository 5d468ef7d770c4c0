"""`tf.keras.utils.experimental`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "DatasetCreator": "stratagem.experimental:DatasetCreator",
    "SidecarEvaluator": "stratagem.train:SidecarEvaluator",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
