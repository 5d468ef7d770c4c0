"""`tf.keras.mixed_precision.experimental`: old spellings."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "LossScaleOptimizer": "keras.mixed_precision:LossScaleOptimizer",
    "Policy": "keras.mixed_precision:Policy",
    "global_policy": "keras.mixed_precision:global_policy",
    "set_policy": "keras.mixed_precision:set_global_policy",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
