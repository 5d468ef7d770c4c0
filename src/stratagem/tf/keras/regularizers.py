"""`tf.keras.regularizers`: Keras's own, and `l1_l2` with its old defaults."""

from __future__ import annotations

from stratagem.tf.keras.namespace import lazy

__getattr__, __dir__ = lazy(
    __name__, {"l1_l2": "stratagem.tf.keras.old_regularizers:l1_l2"}, behind="keras.regularizers"
)
