"""Place of a `fit` whose workers may change: what a worker that catches up needs beside the model's variables.

It is to other workers what a backup is to a restarted run: the same contents, which are asked for in the midst of a
step and never written to a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stratagem.backup import snapshot
from stratagem.backup.callback import Backup
from stratagem.backup.snapshot import Progress, Snapshot
from stratagem.backup.states import CallbackStates
from stratagem.checkpoint.storage import Contents
from stratagem.core.errors import UnsupportedError
from stratagem.core.log import announce
from stratagem.fit import compat
from stratagem.fit.resuming import Session
from stratagem.mesh.given import Given


class PlaceInFit(keras.callbacks.Callback):
    """Callback that knows how far a `fit` is, and lets one begin where other workers are.

    Args:
        call: Which `fit` of the program it is, from 1.
        given: Where it begins; None for its beginning.
        before: That of the same `fit` before this process began it again; None where it did not.
    """

    def __init__(self, call: int, given: Given | None, before: PlaceInFit | None = None) -> None:
        super().__init__()
        self._call = call
        self._begins_again = before is not None
        self._states = CallbackStates([]) if before is None else before._states
        self._told: int | None = None
        """The number of workers that the other callbacks know of."""
        self._is_changed = given is not None
        self._given = given
        self._others: Sequence[Any] = ()
        self._taken: Snapshot | None = None
        self._progress = Progress()
        self._has_begun = False
        """Whether an epoch has begun."""

    # What `fit` asks -----------------------------------------------------------------------------

    def begin_session(self, session: Session, callbacks: Sequence[Any]) -> None:
        self._session = session
        session.beside_variables = self._beside_variables
        session.meet_new = self._meet_new
        session.begins_again, session.continues = self._begins_again, self._given is not None
        if self._given is None:
            return
        said, arrays = self._given
        if said.get("fit") != self._call:
            where = f"call {said['fit']}" if "fit" in said else "the loop of an ElasticState"
            raise UnsupportedError(
                f"A new worker came to the call {self._call} of `fit`; the others are in {where}.",
                "It would continue as if the call were theirs, and would wait alone afterwards.",
                "Let the program call `fit` once; or leave --spares and --elastic out, and use --max-restarts.",
            )
        self._taken = Snapshot(
            Contents(said["metadata"], dict(zip(said["names"], arrays, strict=False))),  # the last ones are logs
            "the state of the other workers",
        )
        self._taken.check_steps(int(session.model.steps_per_execution))
        self._progress, self._told = self._taken.progress, said["workers"]
        session.resumed_at, session.skipped = self._taken.inputs, self._progress.batch
        session.steps = self._progress.steps
        for callback in callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger):  # it would begin its file anew
                callback.append = True

    def end_session(self) -> None:
        self._taken = None

    def set_others(self, callbacks: Sequence[Any]) -> None:
        self._others = callbacks

    # What Keras calls, always after the other callbacks ------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        # A backup may have been restored by now: what is handed on is what has changed since before that.
        keeps = next((each for each in self._others if isinstance(each, Backup)), None)
        begun = self._states if keeps is None or self._begins_again else keeps.states
        self._states = CallbackStates(self._others, begun)
        if self._taken is not None:
            self._taken.check_length(self._session.adapters[0].epoch_batches)
            self._taken.restore(self._session, self._states)
            compat.begin_at_epoch(self._session.model, self._progress.epoch)
            if not self._begins_again:
                announce(
                    f"Going on at epoch {self._progress.epoch + 1}, behind batch {self._progress.batch}, as the others"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:  # Keras has just reset the metrics, and callbacks have begun the epoch once more
            taken.restore(self._session, self._states)
            self._inputs = [place._asdict() for place in taken.inputs]
        else:
            # The first epoch may go on from a backup.
            done = 0 if self._has_begun else self._session.skipped
            self._note(Progress(epoch, done, within_epoch=True, steps=self._session.steps))
        self._has_begun = True
        self._tell()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._note(Progress(self._progress.epoch, batch + 1, within_epoch=True, steps=self._session.steps))
        self._tell()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # The epoch in which a batch gets more or fewer rows has another number of steps than those after it.
        steps, told = self._session.adapters[0].epoch_batches, self.params or {}
        if steps is not None and steps != told.get("steps"):
            for callback in [*self._others, self]:
                callback.set_params({**told, "steps": steps})

    def _meet_new(self) -> None:
        self._is_changed = True

    def _tell(self) -> None:
        """Tell other callbacks that workers have changed, between two steps."""
        workers = self._session.strategy.worker_count
        if self._told is None:
            self._told = workers
        if self._is_changed:
            self._is_changed = False
            before, self._told = self._told, workers
            for callback in self._others:
                if (hear := getattr(callback, "on_world_changed", None)) is not None:
                    hear(before, workers)

    def _note(self, progress: Progress) -> None:
        self._progress = progress
        self._inputs = [place._asdict() for place in self._session.places(epoch_ended=False)]

    def _beside_variables(self) -> Given:
        """Return what a worker needs that begins with the step which this one is about to take."""
        metadata, arrays = snapshot.take(self._session, self._progress, self._states)
        metadata["inputs"] = self._inputs  # the batch of the step has been taken
        said = {"metadata": metadata, "names": [*arrays], "fit": self._call, "workers": self._told}
        return Given(said, [*arrays.values()])
