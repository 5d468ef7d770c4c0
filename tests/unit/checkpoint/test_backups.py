from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratagem.checkpoint import storage
from stratagem.checkpoint.backups import Backups
from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.core.errors import CheckpointError


def test_the_newest_two_are_kept_and_listed(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path / "backup"))
    backups.check()
    for number in range(3):
        backups.commit({"epoch": number}, {"x": np.full(2, number)})
    backups.commit_behind({"epoch": 3}, {"x": np.full(2, 3)})
    assert backups.wait() is None

    files = sorted(file.name for file in (tmp_path / "backup").iterdir())
    assert files == ["backup-3.safetensors", "backup-4.safetensors", "checkpoint"]
    newest = latest_checkpoint(backups.folder)
    assert newest == str(tmp_path / "backup" / "backup-4")
    contents = storage.decode(storage.read(newest), newest)
    assert contents.metadata == {"epoch": 3}
    assert contents.arrays["x"].tolist() == [3, 3]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path))
    backups.commit({}, {"x": np.zeros(1)})
    backups.check()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CheckpointError, match=r"holds something else: notes\.txt"):
        backups.check()


def test_clearing_deletes_the_backups_alone(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path / "backup"))
    backups.commit({}, {"x": np.zeros(1)})
    (tmp_path / "backup" / "notes.txt").touch()
    backups.clear()
    assert [file.name for file in (tmp_path / "backup").iterdir()] == ["notes.txt"]
    (tmp_path / "backup" / "notes.txt").unlink()
    backups.clear()
    assert not (tmp_path / "backup").exists()
