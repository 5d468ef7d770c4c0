"""Lock of a folder, so that two runs do not delete each other's backups."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from pathlib import Path
from typing import Final

from stratagem.core.errors import CheckpointError
from stratagem.core.log import logger

NAME: Final = "lock"
"""Name of the file in the folder; it holds who has the lock."""

_HOLDER: Final = "process "

_held: Final[dict[tuple[int, int], FolderLock]] = {}
"""The locks of this process, by device and number of their file.

The system's lock belongs to a process: it would give it to a second run of the same process, and take it from the first
as soon as any other descriptor of the file is closed.
"""

_turn: Final = threading.Lock()


class FolderLock:
    """The lock of a folder. It also ends with the process, however that ends.

    It is one of records (`fcntl.lockf`), which children of the process do not inherit and NFS knows. Where the file
    system knows none, runs of one process are kept apart alone, and a line in the log says so.

    Args:
        folder: The folder.

    Example:
        >>> lock = FolderLock(getfixture("tmp_path"))
        >>> lock.take()
        >>> lock.release()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / NAME
        self._descriptor: int | None = None
        self._key: tuple[int, int] | None = None

    def take(self) -> None:
        """Take the lock, or see that it is still held: a folder that was removed meanwhile is made and locked again.

        Raises:
            CheckpointError: Another run has the lock, or the folder cannot be written to.
        """
        with _turn:
            if self._is_held():
                return
            self._drop()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock()
            except CheckpointError:
                raise
            except OSError as error:
                raise CheckpointError(
                    f"{self._file} cannot be written: {error}.",
                    "Choose a folder that this process may write to, or make room on the disk.",
                ) from error

    def release(self) -> None:
        """Let other runs have the folder. Harmless when done."""
        with _turn:
            if self._is_held():
                with contextlib.suppress(OSError):
                    self._file.unlink()
            self._drop()

    def _lock(self) -> None:
        """Lock the file that has the name, not one that its holder has just removed."""
        while self._descriptor is None:
            if _key_of(self._file) in _held:
                raise self._taken("another `fit` of this process")
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                self._lock_opened(descriptor)
                key = _key(os.fstat(descriptor))
                if _key_of(self._file) == key:
                    self._descriptor, self._key, _held[key] = descriptor, key, self
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, without a name
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{_HOLDER}{os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def _lock_opened(self, descriptor: int) -> None:
        said = os.read(descriptor, 200).decode(errors="replace").strip()
        if said and not said.startswith(_HOLDER):
            raise CheckpointError(
                f"{self._file} is not the lock of a run: it contains {said!r}.",
                "The file would be overwritten.",
                "Use a separate folder for the backups of each run, or move the file.",
            )
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise self._taken(said or "its process") from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s). Check that no other run uses this folder.", self._file, error)

    def _taken(self, holder: str) -> CheckpointError:
        return CheckpointError(
            f"The backups in {os.fspath(self._folder)!r} are another run's: {holder} has {self._file} locked.",
            "Two runs would continue from each other's backups, and delete them.",
            "Give each run a folder of its own, or end the other one.",
        )

    def _is_held(self) -> bool:
        """Whether the file with the name is still the one that this object has locked."""
        return self._key is not None and _key_of(self._file) == self._key

    def _drop(self) -> None:
        if self._descriptor is not None and self._key is not None:
            del _held[self._key]
            os.close(self._descriptor)
        self._descriptor = self._key = None


def _key_of(file: Path) -> tuple[int, int] | None:
    """Return device and number of a file; None where there is none."""
    try:
        return _key(file.lstat())
    except OSError:
        return None


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
