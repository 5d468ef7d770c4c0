"""`tf.keras.experimental`: old spellings."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "CosineDecay": "keras.optimizers.schedules:CosineDecay",
    "CosineDecayRestarts": "keras.optimizers.schedules:CosineDecayRestarts",
    "SidecarEvaluator": "stratagem.train:SidecarEvaluator",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
