"""`tf.keras.preprocessing.image`: Keras 2's, which Keras 3 still has."""

from __future__ import annotations

from typing import Final

from stratagem.tf.keras.namespace import lazy

_NAMES: Final = {
    "DirectoryIterator": "stratagem.tf.keras.compat:DirectoryIterator",
    "ImageDataGenerator": "stratagem.tf.keras.compat:ImageDataGenerator",
    "Iterator": "stratagem.tf.keras.compat:Iterator",
    "NumpyArrayIterator": "stratagem.tf.keras.compat:NumpyArrayIterator",
    "apply_affine_transform": "stratagem.tf.keras.compat:apply_affine_transform",
    "apply_brightness_shift": "stratagem.tf.keras.compat:apply_brightness_shift",
    "apply_channel_shift": "stratagem.tf.keras.compat:apply_channel_shift",
    "random_brightness": "stratagem.tf.keras.compat:random_brightness",
    "random_channel_shift": "stratagem.tf.keras.compat:random_channel_shift",
    "random_rotation": "stratagem.tf.keras.compat:random_rotation",
    "random_shear": "stratagem.tf.keras.compat:random_shear",
    "random_shift": "stratagem.tf.keras.compat:random_shift",
    "random_zoom": "stratagem.tf.keras.compat:random_zoom",
    "image_dataset_from_directory": "stratagem.data:image_dataset_from_directory",
}
"""What is not as in Keras 3."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="keras.preprocessing.image")
