"""`model.save` and `save_weights`, called by all workers: one file, written once.

State is equal on all workers, so the chief's file is everybody's. The chief writes at once and waits for nobody: a
program may save on the chief alone. Another worker waits until the chief has written its n-th file of the program:
if it is the same path, there is nothing left to do; else the worker writes what it was told to, as TensorFlow's
tutorials do in a temporary folder. Inside `fit`, where the chief has callbacks that others leave out, files cannot
be counted alike: there every worker writes. Nothing is written in place: a file is complete before it takes its name,
so that two workers with one name do no harm, and a process that is killed leaves the old file. That holds for models
of no strategy too.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from stratagem.cluster.agreement import Peers
from stratagem.cluster.bootstrap import current_peers
from stratagem.core.clock import Deadline
from stratagem.core.errors import CheckpointError, PeerError, UsageError
from stratagem.core.files import draft_of
from stratagem.core.progress import Phase, as_saving, progress
from stratagem.mesh.lending import readable

_LOOK_SECONDS: Final = 1.0
"""Seconds after which a worker that waits for the chief's file looks whether it has become the chief."""

_saves = itertools.count(1)


def saving_once(
    original: Callable[..., Any],
    is_shared: Callable[[Any], bool],
    divided_variables: Callable[[Any], Sequence[Any]],
    in_fit: Callable[[], bool],
) -> Any:
    """Wrap `Model.save` or `save_weights`.

    Args:
        original: Keras's.
        is_shared: Whether a model trains on several workers.
        divided_variables: Those of a model of which each worker holds a part only.
        in_fit: Whether `fit` or one of its siblings is running.
    """
    original = _whole(original)

    @functools.wraps(original)
    def save(model: Any, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        peers = current_peers()
        if peers is None or not is_shared(model):
            return original(model, filepath, *args, **kwargs)
        write = functools.partial(original, model, filepath, *args, **kwargs)
        if divided := divided_variables(model):
            if in_fit():
                raise _cannot_be_read(model, filepath, len(divided))
            return _write_divided(peers, divided, filepath, write)
        if in_fit():
            return write()
        name = f"save {next(_saves)}"
        if peers.own_index > 0 and _chief_wrote(peers, name, filepath):
            return None
        # The chief; also one that has become it while it waited for the former's file.
        return write() if peers.own_index > 0 else _write_and_tell(peers, name, filepath, write)

    return save


def _write_divided(
    peers: Peers, variables: Sequence[Any], filepath: str | os.PathLike[str], write: Callable[[], Any]
) -> Any:
    """Write a model of which each worker holds shards: all are here, and lend the chief the wholes.

    Raises:
        CheckpointError: It could not be written, here or on another worker.
        PeerError: A worker did not come.
    """
    paths = peers.from_all(f"save {next(_saves)}", os.path.abspath(filepath))
    is_writer = peers.own_index == 0 or paths[peers.own_index] != paths[0]
    failure: Exception | None = None
    result = None
    with readable(variables, reads=is_writer):
        if is_writer:
            try:
                result = write()
            except Exception as error:
                failure = error
    said = peers.from_all("saved", None if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        raise failure
    if said[0] is not None:
        raise CheckpointError(
            f"{peers.peers[0]} could not save {os.fspath(filepath)!r}: {said[0]}",
            "Fix the problem that this worker reports.",
        ).of_peer()
    return result


def _cannot_be_read(model: Any, filepath: str | os.PathLike[str], count: int) -> UsageError:
    return UsageError(
        f"Model {model.name!r} was to be saved to {os.fspath(filepath)!r} between two steps of `fit`; {count} of its "
        "variables are kept in shards.",
        "Each worker holds a part of them, and the other workers take no part in this save.",
        "Save at the end of an epoch, ModelCheckpoint(save_freq='epoch'); or use stratagem.callbacks.BackupAndRestore, "
        "which all workers take part in.",
    )


def _write_and_tell(peers: Peers, name: str, filepath: str | os.PathLike[str], write: Callable[[], Any]) -> Any:
    failure: str | None = "it was interrupted"
    try:
        result = write()
        failure = None
        return result
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        peers.post(name, {"path": os.path.abspath(filepath), "failure": failure})


def _chief_wrote(peers: Peers, name: str, filepath: str | os.PathLike[str]) -> bool:
    """Wait for the chief's file, and say whether it is this one.

    Raises:
        CheckpointError: The chief could not write it.
        PeerError: The chief saved nothing.
    """
    try:
        with progress.during(Phase.FETCHING, place=f"saving {os.fspath(filepath)!r}"):
            note = _note_of_chief(peers, name)
    except TimeoutError:
        raise PeerError(
            f"{peers.own} saved {os.fspath(filepath)!r}, and {peers.peers[0]} saved nothing.",
            "Save on all workers, or on the chief alone: `if strategy.is_chief: model.save(path)`.",
        ) from None
    if note is None or note["path"] != os.path.abspath(filepath):
        return False
    if note["failure"] is not None:
        raise CheckpointError(
            f"{peers.peers[0]} could not save {os.fspath(filepath)!r}: {note['failure']}",
            "Fix the problem that this worker reports.",
        ).of_peer()
    return os.path.exists(filepath)  # not where the same path means another disk


def _note_of_chief(peers: Peers, name: str) -> Any:
    """Return what the chief has posted; None where it is gone, and this worker is the chief.

    Raises:
        TimeoutError: Nobody posted it in time.
    """
    deadline = Deadline(peers.timeout_seconds)
    while True:
        try:
            return peers.wait_for(name, min(_LOOK_SECONDS, deadline.remaining) if peers.renew else None)
        except TimeoutError:
            if peers.own_index == 0:
                return None
            if peers.renew is None or deadline.expired:
                raise


def _whole(write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes a file so that it is there whole or not at all, a kill or not.

    Folders (`zipped=False`), files in parts and places that are not on a disk are left to Keras.
    """

    @as_saving
    @functools.wraps(write)
    def whole(model: Any, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        path = Path(filepath)
        if {"zipped", "max_shard_size"} & kwargs.keys() or "://" in os.fspath(filepath) or path.is_dir():
            return write(model, filepath, *args, **kwargs)
        with draft_of(path) as draft:
            named = draft.with_name(draft.name + ("".join(path.suffixes) or path.name))  # Keras goes by the ending
            try:
                result = write(model, str(named), *args, **kwargs)
                named.replace(draft)
            except ValueError as error:  # names the file, whose name a user should know
                error.args = tuple(str(each).replace(str(named), str(path)) for each in error.args)
                raise
            finally:
                named.unlink(missing_ok=True)
        return result

    return whole
