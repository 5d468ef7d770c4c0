"""`tf.compat.v1.layers`: layers as functions of a `model_fn`."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.estimator.layers")
