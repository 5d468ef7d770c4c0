from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fresh import run_python

from stratagem.checkpoint import folder_lock
from stratagem.checkpoint.folder_lock import FolderLock
from stratagem.core.errors import CheckpointError


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[FolderLock]:
    lock = FolderLock(tmp_path)
    yield lock
    lock.release()
    assert folder_lock._held == {}


def error_of_another_process(folder: Path) -> str:
    """Return what another process says that takes the lock; nothing where it may."""
    program = (
        "from pathlib import Path; from stratagem.checkpoint.folder_lock import FolderLock; "
        f"FolderLock(Path({str(folder)!r})).take()"
    )
    return run_python("-c", program, home=folder.parent).stderr


def test_another_process_is_told_who_has_it(tmp_path: Path, lock: FolderLock) -> None:
    lock.take()
    holder = f"another run's: process {os.getpid()} on {socket.gethostname()} has {tmp_path}/lock locked."
    assert holder in error_of_another_process(tmp_path)
    lock.release()
    assert not (tmp_path / "lock").exists()
    assert error_of_another_process(tmp_path) == ""


def test_a_second_one_of_the_same_process_is_refused_and_takes_nothing_away(tmp_path: Path, lock: FolderLock) -> None:
    lock.take()
    lock.take()
    second = FolderLock(tmp_path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"another `fit` of this process has .*lock locked"):
            second.take()
    second.release()
    assert "another run's: process" in error_of_another_process(tmp_path)


def test_of_many_at_once_one_has_it(tmp_path: Path) -> None:
    """Each takes and gives back the lock many times; inside, it counts who else is there."""
    inside, most, taken = [0], [0], [0]

    def run() -> None:
        lock = FolderLock(tmp_path)
        while taken[0] < 200:
            try:
                lock.take()
            except CheckpointError:
                continue
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            taken[0] += 1
            inside[0] -= 1
            lock.release()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.thorough
def test_a_file_that_its_holder_removes_meanwhile_is_not_taken(
    tmp_path: Path, lock: FolderLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder ends between the opening of its file and the locking: what was locked has no name any more."""
    lockf, opened = fcntl.lockf, []

    def late(descriptor: int, flags: int) -> None:
        opened.append(os.fstat(descriptor).st_ino)
        if len(opened) == 1:
            (tmp_path / "lock").unlink()
        lockf(descriptor, flags)

    monkeypatch.setattr(folder_lock.fcntl, "lockf", late)
    lock.take()
    assert opened[-1] == (tmp_path / "lock").stat().st_ino
    assert len(opened) == 2
    assert "another run's: process" in error_of_another_process(tmp_path)


@pytest.mark.thorough
def test_a_folder_that_was_removed_is_locked_again(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "backup")
    lock.take()
    (tmp_path / "backup").rename(tmp_path / "elsewhere")
    lock.take()
    assert "another run's: process" in error_of_another_process(tmp_path / "backup")
    assert error_of_another_process(tmp_path / "elsewhere") == ""
    lock.release()


@pytest.mark.parametrize("as_link", [True, False])
def test_a_file_that_is_no_lock_stays_as_it_was(tmp_path: Path, lock: FolderLock, as_link: bool) -> None:
    precious = tmp_path / ("precious" if as_link else "lock")
    precious.write_text("what a program keeps here")
    if as_link:
        (tmp_path / "lock").symlink_to(precious)
    found = "cannot be written" if as_link else "is not the lock of a run: it contains 'what a program keeps here'"
    with pytest.raises(CheckpointError, match=found):
        lock.take()
    assert precious.read_text() == "what a program keeps here"


@pytest.mark.thorough
def test_a_full_disk_does_not_keep_it_from_holding(
    tmp_path: Path, lock: FolderLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder_lock.os, "pwrite", full)
    lock.take()
    monkeypatch.undo()
    assert f"another run's: its process has {tmp_path}/lock locked." in error_of_another_process(tmp_path)
