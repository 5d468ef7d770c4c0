"""Callbacks of a worker: who writes, and who shows progress."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from stratagem.backup.callback import Backup
from stratagem.core import environment
from stratagem.core.errors import UsageError
from stratagem.fit.callbacks import for_this_worker, with_backups_of_workers


def worker(*, is_chief: bool, changes: bool = False) -> Any:
    mesh = SimpleNamespace(world=object() if changes else None)
    return SimpleNamespace(is_chief=is_chief, mesh=mesh)


def test_only_the_chief_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.LAUNCHED, raising=False)
    stop, log = keras.callbacks.EarlyStopping(), keras.callbacks.CSVLogger("log.csv")
    for is_chief, kept in ((True, [stop, log]), (False, [stop])):
        arguments: dict[str, Any] = {"callbacks": [stop, log], "verbose": 1}
        for_this_worker(arguments, worker(is_chief=is_chief))
        assert arguments == {"callbacks": kept, "verbose": 1}


def test_the_folder_of_summaries_is_there_and_empty_on_the_others(tmp_path: Path) -> None:
    board = keras.callbacks.TensorBoard(str(tmp_path / "logs"))
    arguments: dict[str, Any] = {"callbacks": [board], "verbose": 1}
    for_this_worker(arguments, worker(is_chief=False))
    assert arguments["callbacks"] == []
    assert list((tmp_path / "logs").iterdir()) == []


class Evaluates(keras.callbacks.ModelCheckpoint):
    """One of a program's own, which may evaluate on all workers."""


class Logs(keras.callbacks.CSVLogger):
    """The same, with a file of its own."""


class Board(keras.callbacks.TensorBoard):
    """The same, with a folder."""


def test_a_subclass_of_a_program_runs_on_all_workers_and_writes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.LAUNCHED, raising=False)
    given = [Evaluates("a.keras"), Logs("log.csv"), Board("logs")]
    arguments: dict[str, Any] = {"callbacks": given, "verbose": 1}
    for_this_worker(arguments, worker(is_chief=False))
    assert arguments["callbacks"] == given
    assert (given[0].filepath, given[1].filename) == ("a.keras", os.devnull)  # type: ignore[attr-defined]
    assert given[2].log_dir.startswith(tempfile.gettempdir())  # type: ignore[attr-defined]


def test_one_of_a_program_writes_where_it_was_told_once_its_worker_is_the_chief() -> None:
    given = [Logs("log.csv"), Board("logs")]
    for is_chief in (False, False, True):
        for_this_worker({"callbacks": given, "verbose": 1}, worker(is_chief=is_chief))
    assert (given[0].filename, given[1].log_dir) == ("log.csv", "logs")  # type: ignore[attr-defined]


def test_where_workers_change_the_next_chief_goes_on_with_the_files(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("epoch,loss,val_loss\n0,2.5,NA\n")
    best, log = keras.callbacks.ModelCheckpoint("best.keras"), keras.callbacks.CSVLogger(file)
    strategy = worker(is_chief=False, changes=True)
    arguments: dict[str, Any] = {"callbacks": [best, log], "verbose": 1}
    for_this_worker(arguments, strategy)
    kept, passes_on = arguments["callbacks"]
    assert kept is best  # it knows the best loss so far, which the next chief needs
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    passes_on.set_model(model)
    passes_on.on_train_begin()
    passes_on.on_epoch_end(1, {"loss": 2.0})
    assert file.read_text() == "epoch,loss,val_loss\n0,2.5,NA\n"
    strategy.is_chief = True
    passes_on.on_epoch_end(2, {"loss": 1.5})
    passes_on.on_train_end()
    assert file.read_text().split() == ["epoch,loss,val_loss", "0,2.5,NA", "2,1.5,NA"]


def test_one_progress_bar_where_the_launcher_shows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.LAUNCHED, "1")
    arguments: dict[str, Any] = {"callbacks": None, "verbose": 1}
    for_this_worker(arguments, worker(is_chief=False))
    assert arguments == {"callbacks": [], "verbose": 0}


def test_one_of_ours_takes_the_place_of_the_backup_of_keras() -> None:
    stop, backup = (
        keras.callbacks.EarlyStopping(),
        keras.callbacks.BackupAndRestore("backup", 3, delete_checkpoint=False),
    )
    arguments: dict[str, Any] = {"callbacks": [backup, stop]}
    with_backups_of_workers(arguments, Backup.like)
    ours, other = arguments["callbacks"]
    assert (type(ours), other) == (Backup, stop)
    assert (ours.backup_dir, ours.save_freq, ours.delete_checkpoint) == ("backup", 3, False)


class Backs(keras.callbacks.BackupAndRestore):
    """One of a program's own, which may do anything."""


@pytest.mark.parametrize(
    ("callbacks", "found"),
    [
        ([Backs("backup")], "as the base of Backs"),
        (keras.callbacks.CallbackList([keras.callbacks.BackupAndRestore("backup")]), "in a CallbackList"),
    ],
)
def test_a_backup_of_keras_that_none_of_ours_can_replace_is_refused(callbacks: Any, found: str) -> None:
    with pytest.raises(UsageError, match=rf"{found}(.|\n)*Use stratagem\.callbacks\.BackupAndRestore"):
        with_backups_of_workers({"callbacks": callbacks}, Backup.like)


def test_a_list_that_keras_has_made_stays() -> None:
    made = keras.callbacks.CallbackList([])
    arguments: dict[str, Any] = {"callbacks": made, "verbose": 1}
    for_this_worker(arguments, worker(is_chief=False))
    assert arguments == {"callbacks": made, "verbose": 1}
