"""Callbacks for `fit` that strategies need in addition to `keras.callbacks`."""

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
    """Back up a `fit` in a folder, and resume it when the program is started again.

    A backup holds the model's weights, its optimizer, the metrics so far within the epoch, the states of seed
    generators and of Python's and NumPy's random generators, the epoch and batch, the position in the data and the
    seeds of its shuffles, and the state of the other callbacks (docs/resuming.md says which). A run that was killed and
    started again on the same devices ends with exactly the weights of an undisturbed run. On another number of workers
    it sees the same batches. The backup overrides `initial_epoch`. A `fit` that had ended is not trained again.

    With several workers, pass the callback to `fit` on all of them. The chief writes in the background, and all workers
    resume from the chief's backup. A model without a strategy trains under the default strategy. If `fit` runs on
    several workers, this callback replaces `keras.callbacks.BackupAndRestore`.

    Source of the semantics: https://keras.io/api/callbacks/backup_and_restore/ and, for `save_before_preemption`,
    https://www.tensorflow.org/api_docs/python/tf/keras/callbacks/BackupAndRestore

    Args:
        backup_dir: A folder for these backups only; it is created if it does not exist.
        save_freq: "epoch" for the end of each epoch, or a number of batches. False only with
            `save_before_preemption`.
        delete_checkpoint: Whether the backups are deleted when `fit` ends.
        save_before_preemption: Whether all workers save at the same step and exit with code 42 after SIGTERM on any of
            them. With `stratagem run --spares` or `--elastic` they always save if all are told to end; if one is, the
            others continue without it.

    Raises:
        InputError: `save_freq` is not a number of batches, or `backup_dir` is empty.

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
    """Check the steps of a `fit`: whether all replicas hold the same values, and whether all numbers are finite.

    With `replicas`, all replicas of all workers compare digests of the bits of their weights, the optimizer's slots and
    the other variables, including their values before the steps. A single bit that differs ends training with a
    `PeerError` that names the variable, the workers and the steps. State that is divided among the replicas (`shard=`)
    has no second copy, so it is not compared.

    With `nonfinite="locate"`, it finds the first step that leaves NaN or infinity in the loss or in a variable. To do
    so, it runs the last steps again from a copy of the state, with the same bits. The error names the step, the
    operation, its layer, the line of the program, the replica, and the rows of the global batch that lead to it. If the
    input or a variable held NaN before, the error names that instead. The model has the weights from before that step.
    With `nonfinite="stop"` the error names the step and the variables. Infinite gradients that a `LossScaleOptimizer`
    skips are no fault.

    With several workers, pass the callback to `fit` on all of them. It works under every synchronous strategy. A model
    without a strategy trains under the default strategy. It needs the memory of a copy of the state and of the batches
    of `every` steps. docs/insight.md has the measured time.

    Args:
        every: Number of steps between two checks. The error still names the exact step.
        replicas: Whether replicas compare their values.
        nonfinite: "locate", "stop", or None for no check of the numbers.
        folder: Folder in which the chief saves the state before the step and its batch (`step-N.safetensors`), the
            finding (`step-N.json`), and a digest of the state every `every` steps (`digests.jsonl`), which `stratagem
            replay` compares. None saves nothing.

    Raises:
        InputError: An argument cannot be used. In `fit`: a step computed NaN or infinity.
        PeerError: In `fit`: replicas hold different values.
        UnsupportedError: In `fit`: under `ParameterServerStrategy`.

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
        Step 2 computed NaN or infinity: `log` was the first operation, in float32[4, 2]
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
