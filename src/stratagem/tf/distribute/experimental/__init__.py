"""`tf.distribute.experimental`: older spellings, and options of communication."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "coordinator": "stratagem.tf.distribute.experimental.coordinator",
    "partitioners": "stratagem.tf.distribute.experimental.partitioners",
}
"""What is a module."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.experimental")
