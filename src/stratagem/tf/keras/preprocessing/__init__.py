"""`tf.keras.preprocessing`: datasets from files and arrays, and Keras 2's ways of preparing data."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "image": "stratagem.tf.keras.preprocessing.image",
    "image_dataset_from_directory": "stratagem.data:image_dataset_from_directory",
    "sequence": "stratagem.tf.keras.preprocessing.sequence",
    "text": "stratagem.tf.keras.preprocessing.text",
    "text_dataset_from_directory": "stratagem.data:text_dataset_from_directory",
    "timeseries_dataset_from_array": "stratagem.tf.keras.timeseries:timeseries_dataset_from_array",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
