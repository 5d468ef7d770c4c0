"""`tf.keras`: Keras 3, with what has moved or gone since Keras 2."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "activations": "stratagem.tf.keras.activations",
    "applications": "stratagem.tf.keras.applications",
    "backend": "stratagem.tf.keras.backend",
    "callbacks": "stratagem.tf.keras.callbacks",
    "config": "stratagem.tf.keras.config",
    "constraints": "stratagem.tf.keras.constraints",
    "datasets": "stratagem.tf.keras.datasets",
    "estimator": "stratagem.tf.keras.estimator",
    "experimental": "stratagem.tf.keras.experimental",
    "initializers": "stratagem.tf.keras.initializers",
    "layers": "stratagem.tf.keras.layers",
    "losses": "stratagem.tf.keras.losses",
    "metrics": "stratagem.tf.keras.metrics",
    "mixed_precision": "stratagem.tf.keras.mixed_precision",
    "models": "stratagem.tf.keras.models",
    "ops": "stratagem.tf.keras.ops",
    "optimizers": "stratagem.tf.keras.optimizers",
    "preprocessing": "stratagem.tf.keras.preprocessing",
    "random": "stratagem.tf.keras.random",
    "regularizers": "stratagem.tf.keras.regularizers",
    "saving": "stratagem.tf.keras.saving",
    "utils": "stratagem.tf.keras.utils",
    "wrappers": "stratagem.tf.keras.wrappers",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras")
