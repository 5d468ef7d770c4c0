"""Evaluation beside training: a process that follows checkpoints and evaluates each."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import keras

from stratagem.checkpoint.checkpoint import Checkpoint, read_alone
from stratagem.checkpoint.checkpoints_iterator import KERAS_SUFFIXES, checkpoints_of_training, number_in
from stratagem.checkpoint.objects import parts_of
from stratagem.checkpoint.summary import WriteScalars, scalar_writer
from stratagem.cluster.chief_alive import ChiefWatch
from stratagem.cluster.detect import detect
from stratagem.core.clock import Clock
from stratagem.core.errors import InputError, explain
from stratagem.core.log import announce


class SidecarEvaluator:
    """Evaluate a model on each new checkpoint, in a process of its own (`tf.keras.utils.SidecarEvaluator`).

    Training does not wait for it. If checkpoints come faster than they can be evaluated, some are skipped, but never
    the last one. It ends after checkpoint number `max_evaluations`, or when training has ended. It notices the end of
    training if it is part of the cluster (an `evaluator` task in TF_CONFIG, or `stratagem run --evaluator`): the chief
    has left, and the newest checkpoint is evaluated.

    It follows the files of `stratagem.train.Checkpoint(model=model, optimizer=model.optimizer)`, of
    `CheckpointManager`, and of Keras's `ModelCheckpoint` (`.weights.h5`, `.keras`; under `stratagem.tf` also
    checkpoints, `save_weights_only=True` with a name like "ckpt-{epoch}").

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/keras/utils/SidecarEvaluator (2.15)

    Args:
        model: A compiled model like the one that is trained.
        data: Input of `model.evaluate`: (x, y), a dataset, a PyDataset.
        checkpoint_dir: The folder that training saves to; it need not exist yet.
        steps: Number of batches of each evaluation; None means all of `data`.
        max_evaluations: Number of the last checkpoint to evaluate ("ckpt-10" has number 10).
        callbacks: Keras callbacks of `evaluate`.
        log_dir: Folder for TensorBoard's event files: `evaluation_<name>_vs_iterations`. None writes none.
        clock: The source of time, for tests.

    Raises:
        InputError: The model is not compiled.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from stratagem import keras
        >>> from stratagem.train import Checkpoint, SidecarEvaluator
        >>> model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> model.compile(loss="mse")
        >>> folder = tempfile.mkdtemp()
        >>> path = Checkpoint(model=model, optimizer=model.optimizer).save(folder + "/ckpt")
        >>> evaluator = SidecarEvaluator(model, (np.ones((4, 2)), np.zeros((4, 1))), folder, max_evaluations=1)
        >>> [logs["loss"] for logs in evaluator.start().values()]
        [4.0]
    """

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        checkpoint_dir: str | os.PathLike[str],
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        *,
        log_dir: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not model.compiled:
            raise InputError(
                f"SidecarEvaluator was given the model {model.name!r}, which is not compiled.",
                "Call model.compile(loss=..., metrics=...) first, as for training.",
            )
        self.model = model
        self.data = data
        self.checkpoint_dir = os.fspath(checkpoint_dir)
        self.steps = steps
        self.max_evaluations = max_evaluations
        self.callbacks = list(callbacks or [])
        self.log_dir = log_dir
        self._clock = clock or Clock()

    def start(self) -> dict[str, dict[str, float]]:
        """Evaluate checkpoints until training has ended.

        Returns:
            The results of each evaluation, by the checkpoint's path. For several evaluations of one path, the last one.

        Raises:
            UnmatchedError: A checkpoint contains no value for some of the model's weights.
        """
        watch = ChiefWatch(detect().cluster_spec(), self._clock)
        results: dict[str, dict[str, float]] = {}
        checkpoints = checkpoints_of_training(self.checkpoint_dir, watch, clock=self._clock)
        with scalar_writer(self.log_dir) as write:
            for path in checkpoints:
                if self._restore(path):
                    results[path] = self._evaluate(path, write)
                if self.max_evaluations is not None and number_in(path) >= self.max_evaluations:
                    break
        return results

    def _restore(self, path: str) -> bool:
        """Give the model a checkpoint's weights; return False for a file that Keras was still writing."""
        if not path.endswith(KERAS_SUFFIXES):
            status = Checkpoint(model=self.model).restore(path).expect_partial()
            if not status.found("model") and any(map(status.found, parts_of(self.model, ""))):
                # What `model.save_weights` writes: the parts of the model are those of the checkpoint.
                status = read_alone(self.model, path, optimizers=False).expect_partial()
            status.assert_existing_objects_matched()
            if self.model.optimizer is not None:  # for its number of steps; it may be missing
                Checkpoint(optimizer=self.model.optimizer).restore(path).expect_partial()
            return True
        try:
            self.model.load_weights(path)
        except (OSError, zipfile.BadZipFile) as error:  # Keras writes a file bit by bit; its next change brings us back
            warnings.warn(
                explain(
                    f"{path!r} cannot be read: {error}",
                    "This checkpoint is not evaluated. The next one will be.",
                    "Nothing, if training was writing it at that moment. CheckpointManager shows only complete files.",
                ),
                stacklevel=2,
            )
            return False
        return True

    def _evaluate(self, path: str, write: WriteScalars) -> dict[str, float]:
        x, y = self.data if isinstance(self.data, tuple) and len(self.data) == 2 else (self.data, None)
        quiet: Any = 0  # Keras has no annotations: a checker infers str from the default "auto"
        logs = self.model.evaluate(x, y, steps=self.steps, callbacks=self.callbacks, verbose=quiet, return_dict=True)
        optimizer = self.model.optimizer
        iteration = 0 if optimizer is None else int(optimizer.iterations)
        shown = ", ".join(f"{name} = {value:.6g}" for name, value in logs.items())
        announce(f"End of evaluation: {os.path.basename(path)}, iteration {iteration}, {shown}")
        write(iteration, {f"evaluation_{name}_vs_iterations": value for name, value in logs.items()})
        return dict(logs)
