"""`tf.distribute`: the strategies, and what a custom loop asks of them."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
