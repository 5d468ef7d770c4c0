"""Iteration over the checkpoints that another process saves into a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratagem.checkpoint import file_names
from stratagem.checkpoint.state_file import latest_checkpoint, read_state
from stratagem.cluster.chief_alive import ChiefWatch
from stratagem.core.clock import Clock, Deadline

_POLL_SECONDS: Final = 1.0
"""Time between two looks at the folder, as in TensorFlow."""

_LOOK_SECONDS: Final = 2.0
"""Time between two looks whether training still goes on, when there is no new checkpoint."""

KERAS_SUFFIXES: Final = (".weights.h5", ".keras")
"""Endings of the files that Keras's own ModelCheckpoint writes."""


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
    *,
    clock: Clock | None = None,
) -> Iterator[str]:
    """Yield the path of each new checkpoint of a folder.

    If several checkpoints arrive while the caller is busy, only the newest is yielded.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/train/checkpoints_iterator

    Args:
        checkpoint_dir: The folder; it need not exist yet.
        min_interval_secs: Shortest time between two yielded checkpoints, in seconds.
        timeout: Longest time to wait for a new checkpoint, in seconds. None waits for ever.
        timeout_fn: Function that is called each time `timeout` is over. If it returns True, the iteration ends;
            otherwise it waits again. Without it, the iteration ends.
        clock: The source of time, for tests.

    Yields:
        Paths to restore from: those of `Checkpoint` and `CheckpointManager`, and files of Keras's ModelCheckpoint
        (`.weights.h5`, `.keras`).

    Example:
        >>> import tempfile
        >>> from stratagem import keras
        >>> from stratagem.train import Checkpoint, checkpoints_iterator
        >>> folder = tempfile.mkdtemp()
        >>> path = Checkpoint(step=keras.Variable(1)).save(folder + "/ckpt")
        >>> [found == path for found in checkpoints_iterator(folder, timeout=0)]
        [True]
    """
    clock = clock or Clock()
    seen: _Version | None = None
    while True:
        newest = _wait_for_another(checkpoint_dir, seen, timeout, clock)
        if newest is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        rest = Deadline(min_interval_secs, clock)
        seen = newest
        yield newest.path
        if not rest.expired:
            clock.wait(rest.remaining)


def checkpoints_of_training(
    checkpoint_dir: str | os.PathLike[str], watch: ChiefWatch, min_interval_secs: float = 0, clock: Clock | None = None
) -> Iterator[str]:
    """Yield new checkpoints of a folder until the chief has left and the last one has been yielded.

    Args:
        checkpoint_dir: The folder; it need not exist yet.
        watch: Says whether the chief has left.
        min_interval_secs: Shortest time between two yielded checkpoints, in seconds.
        clock: The source of time, for tests.
    """
    # The folder is looked at once more after the watch has said the end: the last checkpoint counts.
    ended = False

    def training_has_ended() -> bool:
        nonlocal ended
        was_over, ended = ended, watch.has_left()
        return was_over

    clock = clock or Clock()
    paths = checkpoints_iterator(checkpoint_dir, timeout=_LOOK_SECONDS, timeout_fn=training_has_ended, clock=clock)
    for path in paths:
        rest = Deadline(min_interval_secs, clock)
        watch.has_left()  # an evaluation may be longer than what is left of training
        yield path
        while not rest.expired and not watch.has_left():
            clock.wait(min(_LOOK_SECONDS, rest.remaining))


@dataclass(frozen=True)
class _Version:
    """A checkpoint at a moment: ModelCheckpoint may write the same file again."""

    path: str
    changed_ns: int


def _wait_for_another(
    folder: str | os.PathLike[str], seen: _Version | None, timeout: float | None, clock: Clock
) -> _Version | None:
    deadline = None if timeout is None else Deadline(timeout, clock)
    while True:
        newest = _newest(os.fspath(folder), seen)
        if newest is not None and newest != seen:
            return newest
        if deadline is not None and deadline.expired:
            return None
        clock.wait(_POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline.remaining))


def _newest(folder: str, seen: _Version | None) -> _Version | None:
    """Return the newest whole checkpoint, or else the file of Keras that was written last."""
    listed = list(read_state(folder).saved)
    if not listed:
        return _newest_of_keras(folder)
    if seen is not None and listed[-1] == seen.path:
        return seen  # without reading all of the file each time
    path = latest_checkpoint(folder)
    return None if path is None else _Version(path, 0)


def _newest_of_keras(folder: str) -> _Version | None:
    versions = []
    for entry in Path(folder).glob("*"):
        if entry.name.endswith(KERAS_SUFFIXES) and not entry.name.startswith("."):
            try:
                versions.append(_Version(str(entry), entry.stat().st_mtime_ns))
            except FileNotFoundError:  # deleted since the folder was listed
                continue
    return max(versions, key=lambda version: (version.changed_ns, number_in(version.path)), default=None)


def number_in(path: str) -> int:
    """Return the last number in a checkpoint's name, -1 where there is none.

    Example:
        >>> number_in("folder/ckpt-12"), number_in("models/05.weights.h5"), number_in("best.keras")
        (12, 5, -1)
    """
    name = Path(path).name
    for suffix in (file_names.SUFFIX, *KERAS_SUFFIXES):
        name = name.removesuffix(suffix)
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else -1
