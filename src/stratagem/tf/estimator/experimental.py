"""`tf.estimator.experimental`: early stopping, and other hooks of `stratagem.estimator`."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.estimator")
