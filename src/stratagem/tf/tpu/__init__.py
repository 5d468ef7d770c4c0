"""`tf.tpu`: as far as programs call it before `TPUStrategy`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {"experimental": "stratagem.tf.tpu.experimental"}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
