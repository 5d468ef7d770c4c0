"""`tf.distribute.experimental.partitioners`: how variables are cut for parameter servers."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.ps.partitioners")
