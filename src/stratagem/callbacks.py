"""Callbacks for `fit`: the counterpart of `tf.keras.callbacks` where strategies need their own."""

from __future__ import annotations

import os
from typing import Literal

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.backup.callback import Backup
from stratagem.fit.time_spent import TimeSpent
from stratagem.inspection.callback import StepInspector
from stratagem.strategy.base import prepare_fit

__all__ = ["BackupAndRestore", "Inspect", "TimeSpent"]


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


class Inspect(StepInspector):
    """Look at the steps of a `fit`: do all replicas hold the same values, and are all numbers finite.

    With `replicas`, all replicas of all workers compare their weights, the optimizer's slots and the other variables
    by digests of their bits, also those that they had before the steps. A single bit that differs ends training with a
    `PeerError` that names the variable, the workers and the steps. What is divided among the replicas (`shard=`)
    has no second copy, and is not compared.

    With `nonfinite="locate"`, the first step that leaves NaN or infinity in the loss or in a variable is found: the
    last steps are run again, bit for bit, from a copy of the state. The error names the step, the operation, its
    layer, the line of the program, the replica, and the rows of the global batch that lead to it; or the input or the
    variable that held NaN before. The model has the weights from before that step. With `nonfinite="stop"` it names
    the step and the variables. Infinite gradients that a `LossScaleOptimizer` passes over are no fault.

    Under several workers all give the callback to `fit`. It works under every synchronous strategy; a model of no
    strategy trains under the default strategy. It takes the memory of a copy of the state and of the batches of
    `every` steps; docs/insight.md says what was measured of the time.

    Args:
        every: After how many steps it looks at all of them. The error names the step all the same.
        replicas: Whether replicas compare what they hold.
        nonfinite: "locate", "stop", or None to leave the numbers alone.
        folder: Where to save the state before the step, its batch and what was found (`step-N.safetensors`,
            `step-N.json`), and a digest of the state every `every` steps (`digests.jsonl`), which `stratagem
            replay` compares; None for nowhere. The chief writes.

    Raises:
        InputError: An argument cannot be used. In `fit`: a step computed NaN or infinity.
        PeerError: In `fit`: replicas hold different values.
        UnsupportedError: In `fit`: under `ParameterServerStrategy`, or `stratagem run --spares` or `--elastic`.

    Example:
        >>> import numpy as np
        >>> from stratagem import keras
        >>> from stratagem.callbacks import Inspect
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(keras.ops.log, name="logarithm")])
        >>> model.compile("sgd", "mse")
        >>> x = np.ones((8, 2), "float32")
        >>> x[5] = -1
        >>> inspect = Inspect(every=10)
        >>> try:
        ...     model.fit(x, x, batch_size=4, shuffle=False, verbose=0, callbacks=[inspect])
        ... except ValueError as error:
        ...     for sentence in str(error).partition(" The loss")[0].split(". "):
        ...         print(sentence)
        Step 2 computed NaN or infinity: `log` did first, in float32[4, 2]
        It is in layer 'logarithm'
        Row 1 of the 4 of its global batch led to it.
    """

    def __init__(
        self,
        every: int = 50,
        replicas: bool = True,
        nonfinite: Literal["locate", "stop"] | None = "locate",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(every, replicas, nonfinite, folder)
        prepare_fit()  # no strategy may have been made
