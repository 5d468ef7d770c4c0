from __future__ import annotations

import os
from pathlib import Path

import pytest

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.state_file import lying_in

ONE, OTHER = "00aa", "11bb"


def test_names_of_workers_files_are_told_from_those_of_checkpoints() -> None:
    file = file_names.shard_file("folder/ckpt-1", ONE, 0, 2)
    assert file_names.owner_of_shard(file.name) == "ckpt-1"
    assert file_names.owner_of_shard(f".{file.name}.123.tmp") == "ckpt-1"
    assert file_names.owner_of_shard(".hidden.shard-00001-of-00002-00aa.safetensors") == ".hidden"
    for name in (
        "ckpt-1.safetensors",
        "ckpt-1.index",
        "model.shard-1.safetensors",
        "ckpt-1.shard-1-of-2-x.safetensors",
    ):
        assert file_names.owner_of_shard(name) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ckpt-1", "ckpt-10"):
        for attempt in (ONE, OTHER):
            file_names.shard_file(tmp_path / name, attempt, 0, 2).touch()
    storage.write(str(tmp_path / "ckpt-10"), "{}", {}, {"attempt": ONE, "files": 2, "layouts": [], "arrays": {}})
    (tmp_path / f".ckpt-1.shard-00002-of-00002-{ONE}.safetensors.77.tmp").touch()
    return tmp_path


def test_files_of_one_attempt_or_all_others_are_deleted(folder: Path) -> None:
    assert len(os.listdir(folder)) == 5
    file_names.remove_shards(folder / "ckpt-1", only=OTHER)
    assert len(os.listdir(folder)) == 4
    file_names.remove_shards(folder / "ckpt-1", keep=ONE)
    assert len(os.listdir(folder)) == 4
    storage.remove(folder / "ckpt-1")
    assert sorted(os.listdir(folder)) == ["ckpt-10.safetensors", f"ckpt-10.shard-00001-of-00002-{ONE}.safetensors"]
    assert [os.path.basename(path) for path in lying_in(str(folder)).saved] == ["ckpt-10"]


def test_files_that_belong_to_no_checkpoint_are_deleted(folder: Path) -> None:
    others = [file_names.shard_file(folder / name, ONE, 0, 2) for name in ("ckpt-best-3", "other-1", "ckpt-")]
    for file in [*others, folder / "ckpt-notes.shard-1"]:
        file.touch()
    file_names.remove_stray_shards(str(folder / "ckpt-"))
    assert sorted(name for name in os.listdir(folder) if "ckpt-1." in name) == []
    assert len(os.listdir(folder)) == 2 + 4  # two of ckpt-10, and what is not of these
