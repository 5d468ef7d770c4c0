"""`tf.lookup`: tables from keys to values, of text and of numbers."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
