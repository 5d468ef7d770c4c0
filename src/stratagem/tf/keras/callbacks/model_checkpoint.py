"""`ModelCheckpoint` under the names that Keras 2 allowed."""

from __future__ import annotations

import os
from typing import Any

import keras

from stratagem.core.errors import InputError
from stratagem.tf.keras.callbacks.monitored import is_accuracy_or_measure, judging_by_name


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Save the model, or its weights, while it trains (`tf.keras.callbacks.ModelCheckpoint`).

    A name without an ending is a folder for a model, and a checkpoint for weights, which
    `tf.train.latest_checkpoint` finds and `model.load_weights` reads. On several workers the chief writes.
    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/keras/callbacks/ModelCheckpoint

    Args:
        filepath: The file or folder to write; `{epoch}` and the names of the logs are filled in.
        monitor: The entry of the logs that decides which model is best.
        verbose: Whether to print a line when it saves.
        save_best_only: Whether to save a model only if it is better than the earlier ones.
        save_weights_only: Whether to save the weights instead of the model.
        mode: "min", "max" or "auto": whether a smaller or a greater value is better.
        save_freq: "epoch", or a number of batches.
        options: Accepted as in TensorFlow.
        initial_value_threshold: The value that the first model must surpass.
        period: An argument of TensorFlow 1: the number of epochs between two saves.
        others: An argument of TensorFlow 1: `load_weights_on_restart`.

    Raises:
        InputError: `load_weights_on_restart` was asked for.

    Example:
        >>> ModelCheckpoint("weights/{epoch}", save_weights_only=True).filepath
        'weights/{epoch}'
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        options: Any = None,
        initial_value_threshold: float | None = None,
        period: int = 1,
        **others: Any,
    ) -> None:
        if others.pop("load_weights_on_restart", False) or others:
            raise InputError(
                f"ModelCheckpoint was asked for {', '.join(others) or 'load_weights_on_restart'}.",
                "It saves but does not restore: a restarted program would begin again from the start.",
                "Give fit a tf.keras.callbacks.BackupAndRestore(folder) as well.",
            )
        # Keras 3 wants certain endings; `Model.save` and `save_weights` here take any.
        allowed: Any = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            allowed, monitor, verbose, save_best_only, save_weights_only, mode, save_freq, initial_value_threshold
        )
        self.filepath = os.fspath(filepath)
        self._period = period

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self._period == 0:
            judging_by_name(self, is_accuracy_or_measure, super().on_epoch_end, epoch, logs)
