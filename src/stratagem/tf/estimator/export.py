"""`tf.estimator.export`: what a served model gets and gives."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="stratagem.estimator.export")
