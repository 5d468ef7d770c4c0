"""`tf.data`: the datasets of `stratagem.data`."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
