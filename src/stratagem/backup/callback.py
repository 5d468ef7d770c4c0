"""Callback that backs up a `fit` while it runs, and goes on from there after a restart."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Literal

import keras

from stratagem.backup import snapshot
from stratagem.backup.snapshot import Progress, Snapshot
from stratagem.backup.states import CallbackStates
from stratagem.checkpoint.background import failure_of
from stratagem.checkpoint.backups import Backups
from stratagem.checkpoint.collective_io import contents_together, finish_together, take_turn
from stratagem.checkpoint.part import Part, may_be_in_shards, part_of
from stratagem.checkpoint.preemption import PreemptionWatch, TerminationConfig, leave
from stratagem.core.errors import InputError, UsageError
from stratagem.core.log import announce
from stratagem.core.progress import as_saving
from stratagem.fit import compat
from stratagem.fit.resuming import Session


class Backup(keras.callbacks.Callback):
    """Callback that backs up a `fit` and resumes it: `stratagem.callbacks.BackupAndRestore` says how.

    Args:
        backup_dir: A folder for these backups alone; it is made if it does not exist.
        save_freq: "epoch" for the end of each epoch, or a number of batches. False only with
            `save_before_preemption`.
        delete_checkpoint: Whether the backups are deleted when `fit` ends.
        save_before_preemption: Whether SIGTERM on any worker lets all save at the same step and exit
            with code 42.

    Attributes:
        states: The other callbacks, as they were before a backup was restored.

    Raises:
        InputError: `save_freq` is no number of batches, or `backup_dir` is empty.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Literal["epoch", False] | int = "epoch",
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
    ) -> None:
        super().__init__()
        _check(backup_dir, save_freq, save_before_preemption)
        self.backup_dir = os.fspath(backup_dir)
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self.save_before_preemption = save_before_preemption
        self._backups = Backups(self.backup_dir)
        self._others: Sequence[Any] = ()
        self.states = CallbackStates([])
        self._restored: Snapshot | None = None
        self._watch: PreemptionWatch | None = None

    @classmethod
    def like(cls, given: Any) -> Backup:
        """Return the callback of ours that does what Keras's own does.

        Args:
            given: A `keras.callbacks.BackupAndRestore`. As its `double_checkpoint` asks, the backup before the newest
                one is kept, always.
        """
        return cls(given.backup_dir, given.save_freq, given.delete_checkpoint)

    # What `fit` asks -----------------------------------------------------------------------------

    def begin_session(self, session: Session, callbacks: Sequence[Any]) -> None:
        session.refuse_alone("Each worker would train a model of its own, and their backups would be mixed up.")
        facts = {"save_freq": str(self.save_freq), "save_before_preemption": self.save_before_preemption}
        session.strategy.check_agreement("arguments of BackupAndRestore", facts)
        self._session = session
        self._world = session.strategy.mesh.world
        watches = self.save_before_preemption and self._world is None  # a world that changes watches by itself
        self._watch = PreemptionWatch(TerminationConfig()) if watches else None
        self._has_ended = False
        self._progress = Progress()
        self._restored = None if session.continues else self._read()
        if self._restored is None:
            return
        self._progress = self._restored.progress
        self._restored.check_steps(int(session.model.steps_per_execution))
        session.resumed_at, session.skipped = self._restored.inputs, self._progress.batch
        session.steps = self._progress.steps
        for callback in callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger):  # it would begin its file anew
                callback.append = True

    def end_session(self) -> None:
        self._backups.close()
        self._restored = None
        if self._watch is not None:
            self._watch.close(hand_on=self._has_ended)  # an exception ends the program with more to say

    def set_others(self, callbacks: Sequence[Any]) -> None:
        self._others = callbacks

    # What Keras calls, always after the other callbacks ------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        if "_progress" not in vars(self):
            raise UsageError(
                "BackupAndRestore was made inside the call of fit, and nothing of Stratagem was made before.",
                "That call is Keras's own fit, which does not know about backups.",
                "Write backup = BackupAndRestore(...) on a line before model.fit(..., callbacks=[backup]).",
            )
        continues = self._session.continues
        self.states = CallbackStates(self._others, self.states if continues else None)
        self._since_last = self._progress.since_last
        self._epoch: int | None = None
        if continues:  # with the counts of another worker, or its own
            return
        if self._restored is None:
            self._save_and_wait(self._progress)  # also shows, before any step, whether it can be written
        else:
            self._go_on(self._restored)
        if self._is_preempted():
            leave()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._done = 0
        self._due_at_end = False
        restored, self._restored = self._restored, None
        if restored is not None and restored.progress.within_epoch:
            # Keras has just reset the metrics, and callbacks have begun, for the second time, an epoch that is
            # under way: a learning rate, say, was multiplied once more.
            restored.restore(self._session, self.states)
            self._done = restored.progress.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        done = batch + 1
        self._since_last += done - self._done
        self._done = done
        due = isinstance(self.save_freq, int) and 0 < self.save_freq <= self._since_last
        if due:
            self._since_last = 0
        if not (due or self._watch or self._world) or self._session.model.stop_training:
            return
        if self._session.adapters[0].epoch_ends_after(done):
            # An epoch without any step left could not be gone on with: Keras would have no logs.
            self._due_at_end = due
        else:
            self._save_or_leave(due, within_epoch=True)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        due = self.save_freq == "epoch" or self._due_at_end or self._session.model.stop_training
        self._save_or_leave(due, within_epoch=False)

    def on_train_end(self, logs: Any = None) -> None:
        # Nothing is deleted before all workers are here: one that dies on its way needs the backup.
        finish_together(None)
        if self._epoch is not None:
            self._save_or_leave(False, within_epoch=False)  # SIGTERM may have come since the last epoch ended
        if not self.delete_checkpoint:
            if self._epoch is not None:
                self._save_and_wait(self._now(within_epoch=False))
        elif self._session.strategy.is_chief:
            self._backups.clear()
        self._has_ended = True

    # Saving and restoring ------------------------------------------------------------------------

    def _go_on(self, restored: Snapshot) -> None:
        restored.check_length(self._session.adapters[0].epoch_batches)
        restored.restore(self._session, self.states)
        progress, epochs = restored.progress, int((self.params or {})["epochs"])
        ended = progress.stopped or progress.epoch >= epochs
        compat.begin_at_epoch(self._session.model, epochs if ended else progress.epoch)
        if self._session.strategy.is_chief:
            self.states.report_missing(restored.callbacks)
            at = "where training had ended" if ended else f"at epoch {progress.epoch + 1}"
            announce(f"Going on {at}{f', behind batch {progress.batch}' if progress.batch else ''}, from a backup")

    def _save_or_leave(self, due: bool, *, within_epoch: bool) -> None:
        """Save if that is due; or, where all workers stop, save and end the process."""
        if self._ends_here or self._is_preempted():
            progress = self._now(within_epoch=within_epoch)
            self._save_and_wait(progress)
            why = "The run ends" if self._ends_here else "Preempted"
            announce(f"{why}: saved at epoch {progress.epoch + 1}, behind batch {progress.batch}")
            if self._world is None:  # else the coordinator ends all
                leave()
        elif due:
            self._save(self._now(within_epoch=within_epoch))

    @property
    def _ends_here(self) -> bool:
        """Whether the run ends here, where workers may change: all leave, or too few were left."""
        return self._world is not None and self._world.membership.ends_here

    def _is_preempted(self) -> bool:
        """Whether all workers stop here. Asked once before each step, on all workers alike."""
        return self._watch is not None and not self._watch.may_begin_step()

    def _now(self, *, within_epoch: bool) -> Progress:
        assert self._epoch is not None, "an epoch has begun"
        stopped, steps = bool(self._session.model.stop_training), self._session.steps
        if within_epoch:
            return Progress(self._epoch, self._done, True, stopped, self._since_last, steps)
        return Progress(self._epoch + 1, 0, False, stopped, self._since_last, steps)

    @as_saving
    def _save(self, progress: Progress) -> None:
        """Copy the state now, and write it while training goes on."""
        with self._part() as part:
            self._backups.commit_behind(*self._completed(part, progress))

    @as_saving
    def _save_and_wait(self, progress: Progress) -> None:
        """Save, and learn whether it was written. All workers hear of it.

        Raises:
            CheckpointError: It could not be written.
        """
        with self._part() as part:
            failure = failure_of(lambda: self._backups.commit(*self._completed(part, progress)))
        finish_together(failure)

    def _part(self) -> contextlib.AbstractContextManager[Part]:
        """Give what this worker writes of the model: the chief all but the shards of others, who write theirs."""
        variables = self._session.gather_state()
        path = self._backups.next_path() if self._session.strategy.is_chief else ""
        return part_of(take_turn(None, path, None, in_shards=may_be_in_shards(variables)), variables)

    def _completed(self, part: Part, progress: Progress) -> tuple[dict[str, Any], Part]:
        """Return JSON and what this worker writes, with all that a backup holds beside the model."""
        if not self._session.strategy.is_chief:
            return {}, part
        metadata, arrays = snapshot.take(self._session, progress, self.states)
        return metadata, part.with_arrays(arrays)

    @as_saving
    def _read(self) -> Snapshot | None:
        """Return the newest backup that is whole; what the chief sees counts."""
        newest = None
        failure = None
        try:
            if self._session.strategy.is_chief:
                self._backups.open()
            newest = self._backups.newest()
        except Exception as error:  # every one: the other workers are waiting to hear of it
            failure = error
        finish_together(failure if self._session.strategy.is_chief else None)
        found = contents_together(newest)
        return None if found is None else Snapshot(*found)


def _check(backup_dir: str | os.PathLike[str], save_freq: object, save_before_preemption: bool) -> None:
    if not isinstance(backup_dir, str | os.PathLike) or not os.fspath(backup_dir):
        raise InputError(
            f"BackupAndRestore was given backup_dir={backup_dir!r}.",
            'Write the path of a folder, for example BackupAndRestore("backup").',
        )
    is_number = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq > 0
    if not (save_freq == "epoch" or is_number or (save_freq is False and save_before_preemption)):
        raise InputError(
            f"BackupAndRestore was given save_freq={save_freq!r}.",
            'Write "epoch", or a number of batches; False goes with save_before_preemption=True only.',
        )
