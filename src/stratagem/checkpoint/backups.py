"""`Backups`: a folder with the newest few backups of one run, and nothing else."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stratagem.checkpoint import file_names, folder_lock, storage
from stratagem.checkpoint.background import Background, failure_of, host_views
from stratagem.checkpoint.folder_lock import FolderLock
from stratagem.checkpoint.manager import publish as publish_newest
from stratagem.checkpoint.part import Part
from stratagem.checkpoint.state_file import EMPTY, NAME, FolderState, is_loadable, lying_in, number_of, read_state
from stratagem.core.errors import CheckpointError
from stratagem.core.log import logger

KEPT: Final = 2
"""How many backups are kept: if the newest turns out to be damaged, the one before it is taken."""

_PREFIX: Final = "backup-"
_OWN: Final = re.compile(
    rf"\.?({NAME}|{folder_lock.NAME}|{_PREFIX}\d{{1,18}}{file_names.SHARD}?{re.escape(file_names.SUFFIX)})(\.\d+\.tmp)?"
)


class Backups:
    """Numbered backups in a folder of their own. One process uses it.

    Args:
        folder: The folder; made when the first backup is written.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._background = Background()
        self._lock = FolderLock(Path(folder))

    def open(self) -> None:
        """Take the folder for this run, and see that it can be written to and holds nothing else.

        Raises:
            CheckpointError: Another run has it, it holds other files, or it cannot be written to.
        """
        self.close()
        self._lock.take()
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Wait for what is written, and let other runs have the folder. Harmless when done."""
        self.wait()
        self._lock.release()

    def newest(self) -> str | None:
        """Return the path of the newest backup that is whole; None in a folder without any.

        Raises:
            CheckpointError: There are backups, and all are damaged: training would begin anew without a word.
        """
        saved = list(self.saved())
        if saved and not read_state(self.folder).saved:
            logger.warning("%s has backups but no list of them. The newest complete backup is used.", self.folder)
        found = next(filter(is_loadable, reversed(saved)), None)
        if saved and found is None:
            raise CheckpointError(
                f"All {len(saved)} backups in {self.folder!r} are damaged or missing.",
                "Training would begin from the start, and replace them.",
                "Put an undamaged copy back. Or delete the folder, to start training from the beginning.",
            )
        return found

    def _check(self) -> None:
        folder = Path(self.folder)
        found = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
        foreign = [name for name in found if not _OWN.fullmatch(name)]
        foreign += [path for path in self.saved() if not _OWN.fullmatch(f"{os.path.basename(path)}{file_names.SUFFIX}")]
        if foreign:
            raise CheckpointError(
                f"The folder for backups, {self.folder!r}, holds something else: {', '.join(foreign[:5])}.",
                "BackupAndRestore deletes old files in it, and the backups when training has ended.",
                "Use a separate folder for the backups of each run, or move the other files.",
            )
        with storage.replacing(folder / NAME) as file:  # the list again, as it was
            file.write((folder / NAME).read_bytes() if (folder / NAME).exists() else EMPTY)

    def next_path(self) -> str:
        """Return what the next backup is called, once the one before it is written."""
        self.wait()
        try:
            saved = self.saved()
        except CheckpointError:  # writing raises it again, and decides what becomes of it
            saved = lying_in(self.folder, f"{_PREFIX}*").saved
        return os.path.join(self.folder, f"{_PREFIX}{1 + max(map(_number_of, saved), default=0)}")

    def commit(self, metadata: Mapping[str, Any], part: Part) -> None:
        """Write a backup, or this worker's part of it, and wait for it.

        Args:
            metadata: What JSON can hold.
            part: What this worker writes.

        Raises:
            CheckpointError: It cannot be written; those before it stay.
        """
        self.wait()
        self._write(metadata, part.on_host(host_views))

    def commit_behind(self, metadata: Mapping[str, Any], part: Part) -> None:
        """Copy the values now, and write the backup in the background, after the one before it.

        A failure there is logged as an error; backups before it stay.
        """
        self.wait()
        if not part.is_empty:
            copied = part.on_host(self._background.copies)
            self._background.start(lambda: self._write(metadata, copied))

    def wait(self) -> Exception | None:
        """Wait for what is written in the background, and return what went wrong with it."""
        return self._background.join()

    def clear(self) -> None:
        """Delete the backups, and the folder if it is empty then. Training has ended: what cannot be deleted stays."""
        self.wait()
        folder = Path(self.folder)
        try:
            self._lock.take()  # a folder that is another run's by now is left alone
            # The list first: what is listed is whole, also when this is interrupted.
            for file in sorted(folder.glob("*"), key=lambda file: file.name != NAME):
                if _OWN.fullmatch(file.name):
                    file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning(
                "Training has ended, but its backups in %s could not be deleted. Give the next `fit` another folder, "
                "or it would continue from them. %s",
                *(self.folder, error),
            )
        self.close()
        failure_of(folder.rmdir)

    def _write(self, metadata: Mapping[str, Any], part: Part) -> None:
        path = part.turn.path

        def publish() -> None:
            saved = self.saved()
            kept = dict(list({**saved, path: time.time()}.items())[-KEPT:])
            publish_newest(self.folder, FolderState(kept), [old for old in saved if old not in kept])
            file_names.remove_stray_shards(os.path.join(self.folder, _PREFIX))

        if part.turn.writes:
            self._lock.take()
        part.write(json.dumps(metadata), publish)

    def saved(self) -> Mapping[str, float]:
        """Return what is listed and what lies there, oldest first: a list may be lost, or name what is lost."""
        found = {**lying_in(self.folder, f"{_PREFIX}*").saved, **read_state(self.folder).saved}
        return {path: found[path] for path in sorted(found, key=_number_of)}


def _number_of(path: str) -> int:
    return number_of(f"{path}{file_names.SUFFIX}")
