"""`tf.keras.utils`: Keras's, and datasets from files that need no TensorFlow."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "SidecarEvaluator": "stratagem.train:SidecarEvaluator",
    "experimental": "stratagem.tf.keras.utils.experimental",
    "image_dataset_from_directory": "stratagem.data:image_dataset_from_directory",
    "text_dataset_from_directory": "stratagem.data:text_dataset_from_directory",
    "timeseries_dataset_from_array": "stratagem.tf.keras.timeseries:timeseries_dataset_from_array",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.utils")
