"""`tf.autograph`: functions are not rewritten here; what marks them is accepted."""

from __future__ import annotations

from stratagem.tf.namespace import lazy

__getattr__, __dir__ = lazy(__name__)
