"""Callbacks for `fit`: the counterpart of `tf.keras.callbacks` where strategies need their own."""

from __future__ import annotations

import os
from typing import Literal

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.backup.callback import Backup
from stratagem.fit.time_spent import TimeSpent
from stratagem.strategy.base import prepare_fit

__all__ = ["BackupAndRestore", "TimeSpent"]


class BackupAndRestore(Backup):
    """Back up a `fit` in a folder, and let the `fit` of a restarted program go on from there.

    A backup holds the model's weights, its optimizer, the metrics so far within the epoch, seed generators and the
    states of Python's and NumPy's generators, epoch and batch, the place in the data and the seeds of its shuffles,
    and the state of the other callbacks (docs/resuming.md says which). A run that was killed and
    started again on the same devices ends with the very weights of one that was not; on another number of workers
    it sees the same batches. `initial_epoch` is superseded, and a `fit` that had ended is not trained again.

    Under several workers all give the callback to `fit`. The chief writes, in the background; what it reads counts
    for all. A model of no strategy trains under the default strategy. Keras's own `keras.callbacks.BackupAndRestore`
    becomes this one where `fit` runs on several workers.
    Source of the semantics: https://keras.io/api/callbacks/backup_and_restore/ and, for
    `save_before_preemption`, https://www.tensorflow.org/api_docs/python/tf/keras/callbacks/BackupAndRestore

    Args:
        backup_dir: A folder for these backups alone; it is made if it does not exist.
        save_freq: "epoch" for the end of each epoch, or a number of batches. False only with
            `save_before_preemption`.
        delete_checkpoint: Whether the backups are deleted when `fit` ends.
        save_before_preemption: Whether SIGTERM on any worker lets all save at the same step and exit
            with code 42.

    Raises:
        InputError: `save_freq` is no number of batches, or `backup_dir` is empty.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from stratagem import keras
        >>> from stratagem.callbacks import BackupAndRestore
        >>> x, y, folder = np.ones((8, 2), "float32"), np.ones((8, 1), "float32"), tempfile.mkdtemp()
        >>> def train(epochs):  # the program, started again with its backup
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        ...     backup = BackupAndRestore(folder, save_freq=1, delete_checkpoint=False)
        ...     return model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=[backup])
        >>> len(train(2).history["loss"]), len(train(2).history["loss"]), len(train(3).history["loss"])
        (2, 2, 3)
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Literal["epoch", False] | int = "epoch",
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
    ) -> None:
        super().__init__(backup_dir, save_freq, delete_checkpoint, save_before_preemption)
        prepare_fit()  # no strategy may have been made
