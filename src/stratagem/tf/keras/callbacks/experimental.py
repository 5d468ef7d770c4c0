"""`tf.keras.callbacks.experimental`."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "BackupAndRestore": "stratagem.callbacks:BackupAndRestore",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
