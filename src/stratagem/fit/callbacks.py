"""Callbacks in a run of several workers: all decide alike, the chief alone prints and writes."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import keras

from stratagem.core import environment
from stratagem.core.errors import UsageError, name_some
from stratagem.core.log import announce, announce_once
from stratagem.fit import compat
from stratagem.fit.named_variables import named_variables
from stratagem.fit.resuming import ResumesFit, Session, WatchesSteps
from stratagem.mesh.lending import give_back, lend
from stratagem.mesh.placing import make_whole
from stratagem.replica.context import StrategyLike

_WRITERS: Final = (keras.callbacks.CSVLogger, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
"""Callbacks that only write files. Workers other than the chief leave them out: logs are equal on
all workers, so what the chief writes is what every worker would have written."""

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

_HOOKS: Final = tuple(
    name for name in dir(keras.callbacks.Callback) if name.startswith("on_") and name != "on_train_begin"
)

_LIBRARIES: Final = ("keras", "stratagem")
"""Whose own classes these are. A program's subclass may do what all workers have to do together, as evaluating."""


def with_backups_of_workers(arguments: dict[str, Any], backup_like: Callable[[Any], ResumesFit]) -> None:
    """Put callbacks of ours in the place of Keras's own BackupAndRestore, whose files every worker would write.

    Args:
        arguments: The bound arguments of `fit`, with `callbacks`; changed in place.
        backup_like: Returns ours.

    Raises:
        UsageError: A subclass of the program, or a CallbackList, where none can take its place.
    """
    given = compat.flattened_callbacks(arguments["callbacks"])
    of_keras = [callback for callback in given if isinstance(callback, keras.callbacks.BackupAndRestore)]
    if not of_keras:
        return
    own_kinds = sorted({type(each).__name__ for each in of_keras if type(each) is not keras.callbacks.BackupAndRestore})
    if own_kinds or isinstance(arguments["callbacks"], keras.callbacks.CallbackList):
        raise UsageError(
            f"`fit` on several workers was given keras.callbacks.BackupAndRestore {_as_what(own_kinds)}.",
            "All workers would write the same files at the same time, and each would read whatever it finds there.",
            "Use stratagem.callbacks.BackupAndRestore, which takes the same arguments.",
        )
    announce_once("`fit` on several workers uses stratagem.callbacks.BackupAndRestore in place of Keras's own.")
    arguments["callbacks"] = [backup_like(callback) if callback in of_keras else callback for callback in given]


def _as_what(own_kinds: Sequence[str]) -> str:
    return f"as the base of {name_some(own_kinds)}" if own_kinds else "in a CallbackList"


def for_this_worker(arguments: dict[str, Any], strategy: StrategyLike) -> None:
    """Change the arguments of `fit`, `evaluate` or `predict` to suit this worker, in place.

    The progress bar appears once where the launcher shows all workers in one terminal. A worker
    started by hand has a terminal or log file of its own and keeps its bar, as in TensorFlow.

    Args:
        arguments: The bound arguments, with `callbacks` and `verbose`.
        strategy: The strategy of the model.

    """
    given = compat.flattened_callbacks(arguments["callbacks"])
    if strategy.is_chief or isinstance(arguments["callbacks"], keras.callbacks.CallbackList):
        for callback in given:  # which may have come to a worker that was not the chief
            for name, value in _written_elsewhere.pop(callback, {}).items():
                setattr(callback, name, value)
        return
    if strategy.mesh.world is None:
        arguments["callbacks"] = [callback for callback in given if not _only_writes(callback)]
    else:
        arguments["callbacks"] = [_for_any_chief(callback, strategy) for callback in given]
    for callback in given:
        if isinstance(callback, keras.callbacks.TensorBoard) and _only_writes(callback):
            _make_folder(os.fspath(callback.log_dir))
    for callback in arguments["callbacks"]:
        _write_elsewhere(callback)
    if environment.LAUNCHED in os.environ:
        arguments["verbose"] = 0


def _for_any_chief(callback: Any, strategy: StrategyLike) -> Any:
    """Return a callback for a worker that may become the chief while it trains."""
    # What a ModelCheckpoint knows, the best loss so far, the next chief needs too; of a model one worker saves anyway.
    writes_alone = _only_writes(callback) and not isinstance(callback, keras.callbacks.ModelCheckpoint)
    return _WhenChief(callback, strategy) if writes_alone else callback


def _leaves_model_alone(callback: Any) -> bool:
    # The last two read it with all workers.
    return type(callback) in _BESIDE_MODEL or isinstance(callback, ResumesFit | WatchesSteps)


def _only_writes(callback: Any) -> bool:
    return isinstance(callback, _WRITERS) and type(callback).__module__.partition(".")[0] in _LIBRARIES


def _make_folder(folder: str) -> None:
    """Make the folder of a callback that is left out: a program may list it on all workers, as in TensorFlow."""
    if "://" not in folder:
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)


_written_elsewhere: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
"""Files and folders that callbacks of a program name, on a worker that is not the chief."""


def _write_elsewhere(callback: Any) -> None:
    """Let a program's subclass of a writer keep its files from those of the chief. A model's file is one anyway."""
    if isinstance(callback, keras.callbacks.CSVLogger):
        _written_elsewhere.setdefault(callback, {"filename": callback.filename})
        callback.filename = os.devnull
    elif isinstance(callback, keras.callbacks.TensorBoard):
        _written_elsewhere.setdefault(callback, {"log_dir": callback.log_dir})
        folder = tempfile.TemporaryDirectory(prefix="stratagem-")
        weakref.finalize(callback, folder.cleanup)
        callback.log_dir = folder.name


class _WhenChief(keras.callbacks.Callback):
    """Passes on to a callback what Keras calls, while this worker is the chief.

    Args:
        callback: It only writes.
        strategy: Knows who the chief is.
    """

    def __init__(self, callback: Any, strategy: StrategyLike) -> None:
        super().__init__()
        self._callback, self._strategy = callback, strategy
        self._has_begun = False
        for name in _HOOKS:
            setattr(self, name, functools.partial(self._pass_on, name))

    def set_params(self, params: Any) -> None:
        self._callback.set_params(params)

    def set_model(self, model: Any) -> None:
        self._callback.set_model(model)

    def _pass_on(self, name: str, *args: Any, **kwargs: Any) -> None:
        if not self._strategy.is_chief:
            return
        if not self._has_begun:
            self._has_begun = True
            if isinstance(self._callback, keras.callbacks.CSVLogger):
                self._callback.append = True  # to what the chief before it wrote
            self._callback.on_train_begin()
        getattr(self._callback, name)(*args, **kwargs)


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
        if world is not None and world.bounds.may_change and logs is not None:
            logs["workers"] = self._session.strategy.worker_count  # Keras gives all callbacks the same logs
        make_whole(self.model)
        self._session.check_weights(f"at the end of epoch {epoch + 1}")
        self._lend()

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


def with_own(arguments: dict[str, Any], session: Session) -> None:
    """Put our callbacks before those of `fit`, which see whole values at the end of each epoch then; a bar behind.

    Args:
        arguments: The bound arguments, with `callbacks`; changed in place.
        session: The call of `fit`.
    """
    if not isinstance(arguments["callbacks"], keras.callbacks.CallbackList):
        given = compat.flattened_callbacks(arguments["callbacks"])
        given = sorted(given, key=lambda each: not isinstance(each, WatchesSteps))  # they look before others save
        session.is_read = not all(map(_leaves_model_alone, given))
        whole = _Whole(session)
        own = [whole, _ReportsInput(session)] if session.strategy.is_chief else [whole]
        behind = [] if session.strategy.sharding is None else [_TakesBack(whole)]
        shown = [_ShowsCluster(session.strategy.status)] if arguments["verbose"] and session.strategy.status() else []
        arguments["callbacks"] = [*own, *given, *behind, *shown]
