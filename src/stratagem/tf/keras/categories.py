"""Classes as vectors, with the dtype of Keras 2."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def to_categorical(y: Any, num_classes: int | None = None, dtype: Any = "float32") -> Any:
    """Return a vector for each class, 1 at its number (`tf.keras.utils.to_categorical`).

    Args:
        y: Numbers of classes, from 0, in any shape. A last axis of size 1 is removed.
        num_classes: The number of classes; None to take it from `y`.
        dtype: The dtype of the vectors; Keras 3 has no such argument.

    Example:
        >>> to_categorical([0, 2], dtype="uint8").tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    return np.asarray(keras.utils.to_categorical(y, num_classes)).astype(np.dtype(dtype))
