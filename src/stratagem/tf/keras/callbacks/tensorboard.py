"""`TensorBoard` without TensorFlow: Keras's own callback, which writes through `tf.summary`, given ours."""

from __future__ import annotations

import os
from typing import Any

import keras

import stratagem.tf as tf
from stratagem.core.errors import InputError


class TensorBoard(keras.callbacks.TensorBoard):
    """Write logs for TensorBoard while a model trains (`tf.keras.callbacks.TensorBoard`).

    `epoch_loss`, `epoch_learning_rate` and the like go to the folders `train` and `validation` in `log_dir`.
    `update_freq` adds values for batches, and `histogram_freq` adds histograms of the weights. The extra `summaries` is
    needed.
    On several workers only the chief writes. There is no graph to write.
    Source of the semantics: https://keras.io/api/callbacks/tensorboard/

    Args:
        log_dir: The folder.
        histogram_freq: The number of epochs between two histograms of the weights; 0 for none.
        write_graph: Accepted as in TensorFlow.
        write_images: Whether to write the weights as images too.
        write_steps_per_second: Whether to write the speed.
        update_freq: "epoch", "batch", or a number of batches: when logs are written.
        profile_batch: The batch to profile, or the first and the last of several; 0 for none.
        embeddings_freq: 0: embeddings are not written.
        embeddings_metadata: None.

    Raises:
        InputError: Embeddings were asked for.

    Example:
        >>> TensorBoard("logs", histogram_freq=1).log_dir
        'logs'
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: Any = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
    ) -> None:
        if embeddings_freq or embeddings_metadata:
            raise InputError(
                f"TensorBoard was given embeddings_freq={embeddings_freq}.",
                "TensorBoard's projector reads embeddings from TensorFlow's checkpoints.",
                "Leave it out, and write the embedding with tensorboardX's SummaryWriter.add_embedding.",
            )
        super().__init__(
            log_dir=os.fspath(log_dir),
            histogram_freq=histogram_freq,
            write_graph=False,
            write_images=write_images,
            write_steps_per_second=write_steps_per_second,
            update_freq=update_freq,
            profile_batch=profile_batch,
        )

    @property
    def summary(self) -> Any:
        """The writer of the logs."""
        return tf.summary

    # Keras 3 lets the condition of batches hold for what belongs to epochs too; Keras 2 did not.

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with tf.summary.record_if(True):
            super().on_epoch_end(epoch, logs)

    def on_test_end(self, logs: Any = None) -> None:
        with tf.summary.record_if(True):
            super().on_test_end(logs)
