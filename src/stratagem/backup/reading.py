"""Reading of a backup that is behind a step, from a folder that another run may still write to: nothing is changed."""

from __future__ import annotations

from pathlib import Path

from stratagem.backup.snapshot import Snapshot
from stratagem.checkpoint import storage
from stratagem.checkpoint.backups import Backups
from stratagem.checkpoint.collective_io import contents_together, finish_together
from stratagem.checkpoint.state_file import is_loadable
from stratagem.core.errors import CheckpointError, InputError, StratagemError
from stratagem.fit.resuming import Session


def snapshot_before(folder: str, step: int, session: Session) -> Snapshot:
    """Return the last backup that was made before a step ran. All workers call it; what the chief reads counts.

    Args:
        folder: That of the backups.
        step: The number of the step; `fit` begins with step 1.
        session: The `fit` that is to go on from it.

    Raises:
        InputError: There is none.
        CheckpointError: It cannot be read.
    """
    path, failure = None, None
    if session.strategy.is_chief:
        try:
            path = _path_before(folder, step)
        except StratagemError as error:  # the other workers are waiting to hear of it
            failure = error
    finish_together(failure)
    found = contents_together(path)
    assert found is not None, "the chief has found one"
    return Snapshot(*found)


def _path_before(folder: str, step: int) -> str:
    saved = list(Backups(folder).saved()) if Path(folder).is_dir() else []
    if not saved:
        raise InputError(
            f"The folder {folder!r} has no backups.",
            "A step is run again from the state of the last backup before it.",
            "Name the folder that the program gives to BackupAndRestore. Give it delete_checkpoint=False too, or the "
            "backups are deleted when fit has ended.",
        )
    steps = {path: _steps_of(path) for path in saved if is_loadable(path)}
    if not steps:
        raise CheckpointError(
            f"All {len(saved)} backups in {folder!r} are damaged or missing.",
            "No step can be run again without a backup.",
            "Put an undamaged copy back.",
        )
    before = [path for path, done in steps.items() if done is not None and done < step]
    if not before:
        listed = " and ".join("an unknown one" if done is None else str(done) for done in steps.values())
        raise InputError(
            f"No backup in {folder!r} is from before step {step}: its backups were made after step {listed}.",
            "A step is run again from the state of the last backup before it.",
            "Name a later step. Or copy the folder while the program trains, because only the newest two backups are "
            "kept.",
        )
    return before[-1]


def _steps_of(path: str) -> int | None:
    """Return how many steps were done when a backup was made; None where it does not say so, as older ones."""
    metadata = storage.decode(storage.read(path), path).metadata
    progress = metadata.get("backup", {}) if isinstance(metadata, dict) else {}
    return progress.get("steps")
