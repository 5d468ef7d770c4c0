"""`tf.compat`: text as bytes and back, and `v1`, as far as Estimator programs use it."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
