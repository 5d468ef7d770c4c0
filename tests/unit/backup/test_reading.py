"""Reading of the backup before a step, from a folder that stays as it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.backup.reading import snapshot_before
from stratagem.callbacks import BackupAndRestore
from stratagem.core.errors import CheckpointError, InputError

CHIEF: Any = SimpleNamespace(strategy=SimpleNamespace(is_chief=True))
X = np.ones((32, 2), "float32")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `fit` of eight steps, with its backups after steps 3 and 6."""
    folder = tmp_path_factory.mktemp("trained")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def end(batch: int, logs: Any) -> None:
        if batch == 7:
            raise InterruptedError

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=end), BackupAndRestore(folder, save_freq=3)]
    with pytest.raises(InterruptedError):
        model.fit(X, X[:, :1], batch_size=4, verbose=0, callbacks=callbacks)
    return folder


@pytest.fixture
def backups(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "backups")


def contents_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(("step", "done"), [(4, 3), (6, 3), (7, 6), (1000, 6)])
def test_the_last_backup_before_the_step_is_read_and_nothing_changes(backups: Path, step: int, done: int) -> None:
    before = contents_of(backups)
    assert snapshot_before(str(backups), step, CHIEF).progress.steps == done
    assert contents_of(backups) == before


def test_a_step_before_all_backups(backups: Path) -> None:
    with pytest.raises(InputError, match=r"from before step 3: its backups were made after step 3 and 6\."):
        snapshot_before(str(backups), 3, CHIEF)


def test_a_damaged_backup_is_left_out(backups: Path) -> None:
    newest = backups / sorted(file.name for file in backups.glob("backup-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="The checkpoint"):
        assert snapshot_before(str(backups), 8, CHIEF).progress.steps == 3
    for file in backups.glob("backup-*"):
        file.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="The checkpoint"),
        pytest.raises(CheckpointError, match=r"All 2 backups in .* are damaged or missing"),
    ):
        snapshot_before(str(backups), 8, CHIEF)


def test_a_folder_without_backups(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="has no backups"):
            snapshot_before(str(folder), 3, CHIEF)
