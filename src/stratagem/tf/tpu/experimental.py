"""`tf.tpu.experimental`: what starts TPUs in TensorFlow."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    name: f"stratagem.tf.distribute.tpu:{name}" for name in ("initialize_tpu_system", "shutdown_tpu_system")
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
