"""`tf.estimator`: `stratagem.estimator`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "experimental": "stratagem.tf.estimator.experimental",
    "export": "stratagem.tf.estimator.export",
    "inputs": "stratagem.estimator.inputs",
}
"""What has a place of its own in TensorFlow."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.estimator")
