"""`tf.summary`: event files for TensorBoard."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
