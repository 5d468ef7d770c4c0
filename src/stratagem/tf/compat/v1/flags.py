"""`tf.compat.v1.flags`: those of absl, as in TensorFlow."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="absl.flags")
