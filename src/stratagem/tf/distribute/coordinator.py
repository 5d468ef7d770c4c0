"""`tf.distribute.coordinator`: asynchronous work on a cluster with parameter servers."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.coordinator")
