"""Which checkpoints are kept, when one is due, and going on after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.checkpoint import file_names, storage
from stratagem.core.errors import CheckpointError, InputError
from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions, latest_checkpoint


def files(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.safetensors"))


def numbers(manager: CheckpointManager) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in manager.checkpoints]


def checkpoint() -> Checkpoint:
    return Checkpoint(step=keras.Variable(0, dtype="int32", trainable=False))


@pytest.mark.parametrize("in_background", [False, True])
def test_newest_are_kept_also_after_a_restart(tmp_path: Path, in_background: bool) -> None:
    options = CheckpointOptions(enable_async=in_background)
    manager = CheckpointManager(checkpoint(), tmp_path, max_to_keep=2)
    for _ in range(3):
        manager.save(options=options)
    manager.sync()
    assert (numbers(manager), files(tmp_path)) == ([2, 3], ["ckpt-2", "ckpt-3"])
    again = CheckpointManager(checkpoint(), tmp_path, max_to_keep=2)
    assert again.checkpoints == manager.checkpoints
    assert again.restore_or_initialize() == manager.latest_checkpoint == str(tmp_path / "ckpt-3")
    assert again.save(options=options) == str(tmp_path / "ckpt-4")
    again.sync()
    assert files(tmp_path) == ["ckpt-3", "ckpt-4"]
    assert latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-4")


def test_each_has_the_index_that_programs_of_tensorflow_look_for(tmp_path: Path) -> None:
    manager = CheckpointManager(checkpoint(), tmp_path, max_to_keep=1)
    manager.save()
    path = manager.save()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["checkpoint", "ckpt-2.index", "ckpt-2.safetensors"]
    assert Path(f"{path}.index").read_text() == "ckpt-2.safetensors\n"


def test_none_keeps_all_and_numbers_may_be_given(tmp_path: Path) -> None:
    manager = CheckpointManager(checkpoint(), tmp_path, max_to_keep=None, checkpoint_name="model")
    for number in (10, 20, 10):
        manager.save(checkpoint_number=number)
    assert numbers(manager) == [20, 10]
    assert files(tmp_path) == ["model-10", "model-20"]
    assert latest_checkpoint(tmp_path) == str(tmp_path / "model-10")


def test_one_in_so_many_hours_is_kept_for_good(tmp_path: Path) -> None:
    now = [1000.0]
    arguments: dict[str, Any] = {"max_to_keep": 1, "keep_checkpoint_every_n_hours": 2, "wall_clock": lambda: now[0]}
    manager = CheckpointManager(checkpoint(), tmp_path, **arguments)
    for _ in range(4):
        now[0] += 3600
        manager.save()
    assert files(tmp_path) == ["ckpt-2", "ckpt-4"]
    manager = CheckpointManager(checkpoint(), tmp_path, **arguments)
    manager.restore_or_initialize()
    for _ in range(3):
        now[0] += 3600
        manager.save()
    assert files(tmp_path) == ["ckpt-2", "ckpt-4", "ckpt-6", "ckpt-7"]
    assert numbers(manager) == [7]


def test_interval_is_counted_in_steps(tmp_path: Path) -> None:
    held = checkpoint()

    def make() -> CheckpointManager:
        return CheckpointManager(held, tmp_path, 5, step_counter=held.step, checkpoint_interval=3)

    manager = make()
    saved = []
    for step in range(8):
        held.step.assign(step)
        if manager.save() is not None:
            saved.append(step)
    assert saved == [0, 3, 6]
    manager = make()
    manager.restore_or_initialize()
    assert int(held.step) == 6
    assert manager.save() is None
    assert manager.save(check_interval=False) == str(tmp_path / "ckpt-4")


def test_damaged_newest_falls_back_with_a_warning(tmp_path: Path) -> None:
    manager = CheckpointManager(checkpoint(), tmp_path, 3)
    paths = [str(manager.save()) for _ in range(2)]
    file_names.file_of(paths[1]).write_bytes(b"")
    again = CheckpointManager(checkpoint(), tmp_path, 3)
    with pytest.warns(UserWarning, match=f"'{paths[1]}' is damaged"):
        assert again.restore_or_initialize() == paths[0]


def test_init_fn_is_called_where_there_is_nothing(tmp_path: Path) -> None:
    calls: list[int] = []
    manager = CheckpointManager(checkpoint(), tmp_path, 1, init_fn=lambda: calls.append(1))
    assert manager.restore_or_initialize() is None
    manager.save()
    assert manager.restore_or_initialize() == str(tmp_path / "ckpt-1")
    assert calls == [1]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        yield


def test_failed_save_keeps_what_was_there(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    manager = CheckpointManager(checkpoint(), tmp_path, 1)
    manager.save()
    request.getfixturevalue("full_disk")
    with pytest.raises(CheckpointError, match="No space left"):
        manager.save()
    assert (numbers(manager), files(tmp_path)) == ([1], ["ckpt-1"])
    assert manager.latest_checkpoint == str(tmp_path / "ckpt-1")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"max_to_keep": 0}, "max_to_keep=0"),
        ({"max_to_keep": 1, "keep_checkpoint_every_n_hours": -1}, "keep_checkpoint_every_n_hours=-1"),
        ({"max_to_keep": 1, "checkpoint_interval": 0}, "checkpoint_interval=0"),
        ({"max_to_keep": 1, "checkpoint_interval": 5}, "no step_counter"),
    ],
)
def test_arguments_that_mean_nothing_are_named(tmp_path: Path, arguments: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        CheckpointManager(checkpoint(), tmp_path, **arguments)


def test_values_of_the_newest_are_restored(tmp_path: Path) -> None:
    held = Checkpoint(x=keras.Variable(np.zeros(3, "float32")))
    manager = CheckpointManager(held, tmp_path, 2)
    for value in (1.0, 2.0):
        held.x.assign(np.full(3, value, "float32"))
        manager.save()
    held.x.assign(np.zeros(3, "float32"))
    manager.restore_or_initialize()
    assert np.asarray(held.x.value).tolist() == [2.0] * 3
