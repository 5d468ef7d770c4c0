"""`tf.profiler`: the profiler of JAX, whose traces TensorBoard shows."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {"experimental": "stratagem.tf.profiler.experimental"}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
