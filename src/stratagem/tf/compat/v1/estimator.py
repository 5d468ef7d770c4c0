"""`tf.compat.v1.estimator`: `tf.estimator`."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.tf.estimator")
