"""`tf.distribute.experimental.coordinator`: the older place of `tf.distribute.coordinator`."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.coordinator")
