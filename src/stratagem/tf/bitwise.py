"""`tf.bitwise`: whole numbers, bit by bit."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "bitwise_and": "stratagem.tf.tensors.elementwise:bitwise_and",
    "bitwise_or": "stratagem.tf.tensors.elementwise:bitwise_or",
    "bitwise_xor": "stratagem.tf.tensors.elementwise:bitwise_xor",
    "invert": "stratagem.tf.tensors.elementwise:invert",
    "left_shift": "stratagem.tf.tensors.elementwise:left_shift",
    "right_shift": "stratagem.tf.tensors.elementwise:right_shift",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
