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
from stratagem.core.log import announce_once
from stratagem.fit import compat
from stratagem.fit.resuming import ResumesFit
from stratagem.replica.context import StrategyLike

_WRITERS: Final = (keras.callbacks.CSVLogger, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
"""Callbacks that only write files. Workers other than the chief leave them out: logs are equal on
all workers, so what the chief writes is what every worker would have written."""

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
