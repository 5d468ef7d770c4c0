"""BatchNormalization whose statistics are those of the global batch."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="stratagem")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """`BatchNormalization(synchronized=True)` (`tf.keras.layers.experimental.SyncBatchNormalization`).

    Args:
        arguments: Those of `BatchNormalization`.

    Example:
        >>> SyncBatchNormalization(momentum=0.9).synchronized
        True
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "synchronized": True})
