"""`tf.config`: which devices there are and which are used; switches of TensorFlow's runtime."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
