"""Callback that lets a `fit` begin at a backup, train up to a step, and end there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import keras

from stratagem.backup.callback import Backup
from stratagem.backup.reading import snapshot_before
from stratagem.backup.snapshot import Snapshot
from stratagem.backup.states import CallbackStates
from stratagem.core.errors import InputError, name_some
from stratagem.core.log import announce
from stratagem.feed.batch import GlobalBatch
from stratagem.fit import compat
from stratagem.fit.resuming import Session
from stratagem.fit.steps import Step
from stratagem.inspection.callback import StepInspector
from stratagem.inspection.saving import Digests
from stratagem.mesh.mesh import Tree
from stratagem.replay.again import Result, Wanted, run_again

_WITHOUT_FILES: Final = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)
"""Keras's callbacks that change what is trained, and write nothing."""


class ReplayedError(BaseException):
    """The step was run again, so the program is done. An `except Exception` in the program does not catch it.

    Args:
        result: The result.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(result.text)
        self.result = result


class Chooser:
    """Chooses the callbacks of each `fit` of a program that is run for one of its steps.

    Args:
        wanted: The step.

    Attributes:
        fits: How many calls of `fit` there were.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.fits = 0

    def __call__(self, callbacks: Sequence[Any]) -> Sequence[Any]:
        self.fits += 1
        kept = [each for each in callbacks if type(each) in _WITHOUT_FILES]
        own = (Backup, StepInspector, *_WITHOUT_FILES)
        left_out = [type(each).__name__ for each in callbacks if not isinstance(each, own)]
        if left_out:
            announce(
                f"These callbacks are left out, because they may write files: {name_some(left_out)}. If one of them "
                "changes training, the step differs from the original one."
            )
        if not any(isinstance(each, Backup) for each in callbacks):
            return kept
        folders = [each.folder for each in callbacks if isinstance(each, StepInspector) and each.folder]
        return [*kept, ReplayPoint(self._wanted, Digests(folders[0]) if folders else None)]


class ReplayPoint(keras.callbacks.Callback):
    """Callback that replaces a `BackupAndRestore`: it reads a backup, and writes nothing.

    Args:
        wanted: The step.
        digests: The digests of the run that made the backup; None if there are none.
    """

    def __init__(self, wanted: Wanted, digests: Digests | None) -> None:
        super().__init__()
        self._wanted = wanted
        self._digests = digests
        self._others: Sequence[Any] = ()
        self._restored: Snapshot | None = None

    # What `fit` asks -----------------------------------------------------------------------------

    def begin_session(self, session: Session, callbacks: Sequence[Any]) -> None:
        self._session = session
        self._restored = restored = snapshot_before(self._wanted.backup, self._wanted.step, session)
        restored.check_steps(int(session.model.steps_per_execution))
        session.resumed_at, session.skipped = restored.inputs, restored.progress.batch
        session.steps = restored.progress.steps

    def end_session(self) -> None:
        self._restored = None

    def set_others(self, callbacks: Sequence[Any]) -> None:
        self._others = callbacks

    def begin_watching(self, session: Session) -> None:
        pass

    def before_step(self, step: Step, values: list[jax.Array], batch: GlobalBatch) -> None:
        first = self._session.steps + 1
        if self._wanted.step < first + batch.steps:
            raise ReplayedError(run_again(self._wanted, step, values, batch, first, self._digests))

    def after_step(self, step: Step, values: list[jax.Array], logs: Tree) -> None:
        pass

    def meet_new(self, steps: int) -> None:
        pass

    def look(self) -> None:
        pass

    def end_watching(self) -> None:
        pass

    # What Keras calls, always after the other callbacks ------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        assert self._restored is not None, "a backup was read"
        self._states = CallbackStates(self._others)
        progress, epochs = self._restored.progress, int((self.params or {})["epochs"])
        self._restored.check_length(self._session.adapters[0].epoch_batches)
        self._restored.restore(self._session, self._states)
        ended = progress.stopped or progress.epoch >= epochs
        compat.begin_at_epoch(self._session.model, epochs if ended else progress.epoch)
        if self._session.strategy.is_chief:
            announce(f"Step {self._wanted.step} is run from the backup after step {progress.steps}")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        restored, self._restored = self._restored, None
        if restored is not None and restored.progress.within_epoch:
            restored.restore(self._session, self._states)  # Keras has just reset the metrics

    def on_train_end(self, logs: Any = None) -> None:
        raise InputError(
            f"`fit` has ended after step {self._session.steps}, and --step is {self._wanted.step}.",
            "So the program has no such step to run again.",
            f"Name a step up to {self._session.steps}. Or give the program the same arguments as before.",
        )
