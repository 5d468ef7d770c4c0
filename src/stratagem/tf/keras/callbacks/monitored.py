"""Callbacks that watch a metric, where Keras 3 does not know whether its best value is the highest or the lowest.

Keras 3 asks for `mode=` there: for a metric of the program's own, a number that a training step returns, or
one that a callback adds to the logs. Keras 2 went by the name. Source of the semantics:
https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/callbacks/EarlyStopping
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from stratagem.core.log import announce_once


def judging_by_name(callback: Any, rises: Callable[[str], bool], call: Callable[..., None], *args: Any) -> None:
    """Call a method of a callback whose `mode` is "auto"; where Keras cannot tell the direction, the name decides.

    Args:
        callback: It has `monitor`, `mode`, and `monitor_op`, which is None until Keras knows the direction.
        rises: Whether the best value of a metric of this name is the highest.
        call: The method, which raises ValueError before it has done anything where Keras cannot tell.
        args: Its arguments.
    """
    try:
        call(*args)
    except ValueError:
        if callback.mode != "auto" or callback.monitor_op is not None:
            raise
        callback.mode = "max" if rises(callback.monitor) else "min"
        announce_once(
            f"{type(callback).__name__} takes the {'highest' if callback.mode == 'max' else 'lowest'} "
            f"{callback.monitor} as the best, as Keras 2 did for this name: write mode='max' or mode='min'."
        )
        call(*args)


def _is_accuracy(name: str) -> bool:
    return name.endswith(("acc", "accuracy", "auc"))


def _has_accuracy(name: str) -> bool:
    return "acc" in name


def is_accuracy_or_measure(name: str) -> bool:
    """Return whether `ModelCheckpoint` took the highest value of a metric as the best.

    Args:
        name: The name of the metric.

    Example:
        >>> is_accuracy_or_measure("val_acc"), is_accuracy_or_measure("val_f1_score")
        (True, False)
    """
    return "acc" in name or name.startswith("fmeasure")


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Keras's `EarlyStopping`, with any metric (`tf.keras.callbacks.EarlyStopping`).

    Args:
        arguments: Those of `keras.callbacks.EarlyStopping`.

    Example:
        >>> EarlyStopping(monitor="val_f1_score", patience=3).patience
        3
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        judging_by_name(self, _is_accuracy, super().on_epoch_end, epoch, logs)


class ReduceLROnPlateau(keras.callbacks.ReduceLROnPlateau):
    """Keras's `ReduceLROnPlateau`, with any metric (`tf.keras.callbacks.ReduceLROnPlateau`).

    Args:
        arguments: Those of `keras.callbacks.ReduceLROnPlateau`.

    Example:
        >>> ReduceLROnPlateau(monitor="val_f1_score", factor=0.5).factor
        0.5
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        judging_by_name(self, _has_accuracy, super().on_epoch_end, epoch, logs)
