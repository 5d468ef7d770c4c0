"""`tf.compat.v1`: what Estimator programs use of it. What has no other meaning there is `tf`'s."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
