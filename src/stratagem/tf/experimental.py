"""`tf.experimental`: NumPy's functions, which are those of `jax.numpy`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {"numpy": "jax.numpy"}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
