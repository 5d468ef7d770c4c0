"""Callbacks of ours that `fit` runs beside the program's: they make values whole, look before saves, and report."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import keras

from stratagem.core.freed_memory import tidy_between_epochs
from stratagem.core.log import announce
from stratagem.fit import compat
from stratagem.fit.named_variables import named_variables
from stratagem.fit.resuming import ResumesFit, Session, WatchesSteps, watchers_among
from stratagem.mesh.lending import give_back, lend
from stratagem.mesh.placing import make_whole

_BESIDE_MODEL: Final = (
    keras.callbacks.CSVLogger,
    keras.callbacks.History,
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TerminateOnNaN,
)
"""Callbacks that read no weights or slots, so that nothing need be put together for them."""


class _Whole(keras.callbacks.Callback):
    """Makes the model whole on all workers, and sees that all hold the same, before the chief's callbacks may save it.

    Args:
        session: The call of `fit`.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._lent: list[Any] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        world = self._session.strategy.mesh.world
        if world is not None and world.membership.bounds.may_change and logs is not None:
            logs["workers"] = self._session.strategy.worker_count  # Keras gives all callbacks the same logs
        make_whole(self.model)
        self._session.check_weights(f"at the end of epoch {epoch + 1}")
        self._lend()
        tidy_between_epochs()

    def on_train_end(self, logs: Any = None) -> None:
        self._lend()

    def take_back(self) -> None:
        """Let variables rest in shards again that were lent to callbacks."""
        give_back(self._lent)
        self._lent = []

    def _lend(self) -> None:
        """Let callbacks read what rests in shards, on those workers that have such callbacks."""
        strategy = self._session.strategy
        if strategy.sharding is None or not strategy.mesh.multi_process:
            return
        session = self._session  # not in this callback: what that holds is in backups, and the next `fit` has others
        if session.is_read_anywhere is None:
            session.is_read_anywhere = any(strategy.from_all("callbacks that may read the model", session.is_read))
        if session.is_read_anywhere:
            variables = [variable for _, variable in named_variables(self.model)]
            self._lent = lend(variables, reads=self._session.is_read)


class _TakesBack(keras.callbacks.Callback):
    """Ends what `_Whole` has lent, when the callbacks between the two have run.

    Keras averages weights before `on_train_end`: on all workers alike, as all hold shards.
    """

    def __init__(self, whole: _Whole) -> None:
        super().__init__()
        self._whole = whole

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._whole.take_back()

    def on_train_end(self, logs: Any = None) -> None:
        self._whole.take_back()


_since_saved: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
"""Counts of each ModelCheckpoint that saves within epochs: steps since it saved, the last step of its epoch it saw.

Every worker counts for itself: those that are not the chief run without the callback."""


class _LooksBeforeSaving(keras.callbacks.Callback):
    """Lets watchers look at the state before a ModelCheckpoint saves it within an epoch. All workers have it.

    Workers look together. Where a program gives such callbacks to the chief alone, nobody looks.

    Args:
        session: The call of `fit`.
        checkpoints: Those callbacks that this worker was given.
    """

    def __init__(self, session: Session, checkpoints: Sequence[Any]) -> None:
        super().__init__()
        self._session = session
        self._counted = [(each.save_freq, _since_saved.setdefault(each, [0, -1])) for each in checkpoints]

    def on_train_begin(self, logs: Any = None) -> None:
        own = [every for every, _ in self._counted]
        if any(each != own for each in self._session.strategy.from_all("steps between saves", own)):
            self._counted = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        is_due = False
        for every, counts in self._counted:
            since, last = counts
            since += batch - last if batch > last else batch + 1  # as Keras counts steps that run as one
            is_due |= since >= every
            counts[:] = [0 if since >= every else since, batch]
        if is_due:
            for watcher in self._session.watchers:
                watcher.look()

    def get_state(self) -> list[list[int]]:
        return [list(counts) for _, counts in self._counted]

    def set_state(self, state: list[list[int]]) -> None:
        for (_, counts), saved in zip(self._counted, state, strict=False):
            counts[:] = saved


class _ReportsInput(keras.callbacks.Callback):
    """Says once, after an epoch that waited much for data, how much and what to write."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._said = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._session.wait.begin_epoch()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._session.wait.is_bottleneck and not self._said:
            self._said = True
            announce(self._session.wait.report(epoch, self._session.adapters[0].source))


class _ShowsCluster(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, with a word on the cluster behind the time of a step. Logs are left as they are.

    Args:
        status: Returns that word.
    """

    async_safe = True  # like the bar that Keras adds itself, it may be called in another thread

    def __init__(self, status: Callable[[], str]) -> None:
        super().__init__()
        self._status = status

    def _update_progbar(self, batch: int, logs: Any = None) -> None:
        self._tell()
        super()._update_progbar(batch, logs)

    def _finalize_progbar(self, logs: Any) -> None:
        self._tell()
        super()._finalize_progbar(logs)

    def _tell(self) -> None:
        self._maybe_init_progbar()
        bar: Any = self.progbar
        bar.unit_name = f"step ({self._status()})"


def saving_within_epochs(callbacks: Any) -> list[Any]:
    """Return those callbacks that save the model behind a number of steps.

    Args:
        callbacks: What `fit` was given.
    """
    given = compat.flattened_callbacks(callbacks)
    return [each for each in given if isinstance(each, keras.callbacks.ModelCheckpoint) and each.save_freq != "epoch"]


def with_own(arguments: dict[str, Any], session: Session, checkpoints: Sequence[Any]) -> None:
    """Put our callbacks before those of `fit`, which see whole values at the end of each epoch then; a bar behind.

    Args:
        arguments: The bound arguments, with `callbacks`; changed in place.
        session: The call of `fit`.
        checkpoints: The callbacks that save within epochs, also those that the chief alone runs.
    """
    if not isinstance(arguments["callbacks"], keras.callbacks.CallbackList):
        given = compat.flattened_callbacks(arguments["callbacks"])
        given = sorted(given, key=lambda each: not isinstance(each, WatchesSteps))  # they look before others save
        session.is_read = not all(map(_leaves_model_alone, given))
        whole = _Whole(session)
        own: list[Any] = [whole, _ReportsInput(session)] if session.strategy.is_chief else [whole]
        if watchers_among(given):
            own.append(_LooksBeforeSaving(session, checkpoints))
        behind = [] if session.strategy.sharding is None else [_TakesBack(whole)]
        shown = [_ShowsCluster(session.strategy.status)] if arguments["verbose"] and session.strategy.status() else []
        arguments["callbacks"] = [*own, *given, *behind, *shown]


def _leaves_model_alone(callback: Any) -> bool:
    # The last two read it with all workers.
    return type(callback) in _BESIDE_MODEL or isinstance(callback, ResumesFit | WatchesSteps)
