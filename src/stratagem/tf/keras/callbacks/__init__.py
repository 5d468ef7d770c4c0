"""`tf.keras.callbacks`: Keras's, and those of ours that strategies need."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "BackupAndRestore": "stratagem.callbacks:BackupAndRestore",
    "ModelCheckpoint": "stratagem.tf.keras.callbacks.model_checkpoint:ModelCheckpoint",
    "TensorBoard": "stratagem.tf.keras.callbacks.tensorboard:TensorBoard",
    "experimental": "stratagem.tf.keras.callbacks.experimental",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.callbacks")
