"""`CheckpointManager`: keeps the newest checkpoints of a program, deletes older ones, finds the one to restore."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.checkpoint import Checkpoint, CheckpointOptions
from stratagem.checkpoint.state_file import FolderState, is_loadable, read_state, write_state
from stratagem.core.errors import InputError, explain, name_some
from stratagem.core.log import logger

_SECONDS_PER_HOUR = 3600.0


class CheckpointManager:
    """Numbered checkpoints in one folder, of which the newest are kept (`tf.train.CheckpointManager`).

    A manager of a folder with checkpoints continues from them, also in another process. With several workers, all make
    a manager, and call `save` and `restore_or_initialize` at the same points; see `Checkpoint`. Source of the
    semantics: https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager

    Args:
        checkpoint: The checkpoint to save.
        directory: The folder.
        max_to_keep: Number of checkpoints to keep; None keeps all.
        keep_checkpoint_every_n_hours: In addition, keep one checkpoint for each period of this many hours permanently.
        checkpoint_name: Beginning of the names.
        step_counter: The variable that `checkpoint_interval` counts in, such as `optimizer.iterations`.
        checkpoint_interval: Number of steps between two checkpoints; a `save` in between does nothing.
        init_fn: Function that `restore_or_initialize` calls if there is no checkpoint yet.
        wall_clock: Function that returns seconds since 1970.

    Raises:
        InputError: `checkpoint` is not a Checkpoint, `directory` is not a folder, a number is not positive, or
            `checkpoint_interval` has no `step_counter`.

    Example:
        >>> import tempfile
        >>> from stratagem import keras
        >>> from stratagem.train import Checkpoint, CheckpointManager
        >>> step = keras.Variable(0, dtype="int32", trainable=False)
        >>> manager = CheckpointManager(Checkpoint(step=step), tempfile.mkdtemp(), max_to_keep=2)
        >>> [manager.save()[-6:] for _ in range(3)]
        ['ckpt-1', 'ckpt-2', 'ckpt-3']
        >>> [path[-6:] for path in manager.checkpoints]
        ['ckpt-2', 'ckpt-3']
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], object] | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(checkpoint, Checkpoint) or not isinstance(directory, str | os.PathLike):
            raise InputError(
                f"CheckpointManager was given a {type(checkpoint).__name__} and a {type(directory).__name__}.",
                "Write CheckpointManager(Checkpoint(model=model), folder, max_to_keep=3).",
            )
        _check_positive("max_to_keep", max_to_keep)
        _check_positive("keep_checkpoint_every_n_hours", keep_checkpoint_every_n_hours)
        _check_positive("checkpoint_interval", checkpoint_interval)
        if checkpoint_interval is not None and step_counter is None:
            raise InputError(
                f"checkpoint_interval is {checkpoint_interval}, and there is no step_counter.",
                "Write step_counter=optimizer.iterations, or a variable that the program counts up.",
            )
        self.checkpoint = checkpoint
        self.directory = os.fspath(directory)
        self.checkpoint_interval = checkpoint_interval
        self._prefix = os.path.join(self.directory, checkpoint_name)
        self._max_to_keep = max_to_keep
        self._keep_seconds = _SECONDS_PER_HOUR * (keep_checkpoint_every_n_hours or 0.0)
        self._step_counter = step_counter
        self._init_fn = init_fn
        self._wall_clock = wall_clock
        self._last_saved_step: int | None = None
        self._whole: set[str] = set()
        self._warned = False
        state = read_state(self.directory)
        preserved = wall_clock() if state.last_preserved is None else state.last_preserved
        self._state = FolderState(state.saved, preserved)
        self._known = set(state.saved.items())

    @property
    def checkpoints(self) -> list[str]:
        """Paths of the kept checkpoints, oldest first, without the permanent ones."""
        return list(self._state.saved)

    @property
    def latest_checkpoint(self) -> str | None:
        """Path of the newest complete checkpoint; None if there is none.

        A warning names a checkpoint that is damaged or missing.
        """
        for path in reversed(self.checkpoints):
            if path not in self._whole and is_loadable(path):
                self._whole.add(path)
            if path in self._whole:
                return path
        return None

    def save(
        self,
        checkpoint_number: int | None = None,
        check_interval: bool = True,
        options: CheckpointOptions | None = None,
    ) -> str | None:
        """Save a checkpoint, and delete the oldest ones.

        Args:
            checkpoint_number: Its number; None means the next one of `checkpoint.save_counter`.
            check_interval: Whether to respect `checkpoint_interval`.
            options: Options for saving.

        Returns:
            Its path; None if the interval since the last checkpoint is not over.

        Raises:
            CheckpointError: The file cannot be written, here or on another worker. Earlier checkpoints are kept.
            InputError: An object cannot be saved.
            PeerError: A worker did not arrive.
        """
        step = self._step()
        if check_interval and not self._is_due(step):
            return None
        number = int(self.checkpoint.save_counter) + 1 if checkpoint_number is None else int(checkpoint_number)
        expected = f"{self._prefix}-{number}"
        state, dropped = self._with(expected)
        path = self.checkpoint.save_numbered(self._prefix, number, options, lambda path: self._publish(state, dropped))
        self._state = state if path == expected else self._with(path)[0]
        self._known |= set(self._state.saved.items())
        self._whole.add(path)
        self._last_saved_step = step
        return path

    def restore_or_initialize(self) -> str | None:
        """Restore the newest checkpoint, or call `init_fn` if there is none.

        Returns:
            The path of the restored checkpoint; None if there was none.

        Raises:
            CheckpointError: A checkpoint cannot be read.
            InputError: A shape or dtype does not fit.
            PeerError: A worker did not arrive.
        """
        _, path = self.checkpoint.restore_from_chief(self.latest_checkpoint)
        if path is not None:
            self._last_saved_step = self._step()
        elif self._init_fn is not None:
            self._init_fn()
        return path

    def sync(self) -> None:
        """Wait until all background saves are written; see `Checkpoint.sync`."""
        self.checkpoint.sync()

    def _publish(self, state: FolderState, dropped: list[str]) -> None:
        others = read_state(self.directory).saved.items() - self._known
        if others and not self._warned:
            self._warned = True
            logger.warning(
                explain(
                    f"{self.directory!r} lists checkpoints that another CheckpointManager saved since this one was "
                    f"made: {name_some(sorted(path for path, _ in others), 3)}.",
                    "Each manager removes the other's checkpoints from the list, and may overwrite their files.",
                    "Give each manager a folder of its own.",
                )
            )
        publish(self.directory, state, dropped)
        file_names.remove_stray_shards(f"{self._prefix}-")

    def _step(self) -> int | None:
        return None if self.checkpoint_interval is None else int(self._step_counter)

    def _is_due(self, step: int | None) -> bool:
        if step is None or self._last_saved_step is None or self.checkpoint_interval is None:
            return True
        return step >= self._last_saved_step + self.checkpoint_interval

    def _with(self, path: str) -> tuple[FolderState, list[str]]:
        """Return the folder's state once `path` is saved, and what may be deleted."""
        saved = {other: when for other, when in self._state.saved.items() if other != path}
        saved[path] = self._wall_clock()
        preserved = self._state.last_preserved or 0.0
        dropped = []
        while self._max_to_keep is not None and len(saved) > self._max_to_keep:
            oldest = next(iter(saved))
            when = saved.pop(oldest)
            if self._keep_seconds and when - self._keep_seconds >= preserved:
                preserved = when
            else:
                dropped.append(oldest)
        return FolderState(saved, preserved), dropped


def publish(directory: str, state: FolderState, dropped: list[str]) -> None:
    """List a checkpoint whose file is complete, then delete what is too old: never the other way round."""
    write_state(directory, state)
    for old in dropped:
        try:
            storage.remove(old)
        except OSError as error:
            logger.warning("The old checkpoint %r could not be deleted: %s", old, error)


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and value <= 0:
        raise InputError(
            f"CheckpointManager was given {name}={value!r}.", f"Write a positive number, or leave {name} out."
        )
