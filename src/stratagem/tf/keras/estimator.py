"""`tf.keras.estimator`: a Keras model as an Estimator."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "model_to_estimator": "stratagem.estimator:model_to_estimator",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
