"""`tf.keras.optimizers.legacy`: there is one kind of optimizers, which takes the old arguments too."""

from __future__ import annotations

from stratagem.tf.keras.namespace import lazy

__getattr__, __dir__ = lazy(__name__, {}, behind="keras.optimizers")
