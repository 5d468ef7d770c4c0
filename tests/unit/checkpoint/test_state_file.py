"""Which checkpoint of a folder is the newest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.state_file import FolderState, read_state, write_state
from stratagem.train import latest_checkpoint


def folder_with(folder: Path, *numbers: int) -> list[str]:
    paths = [str(folder / f"ckpt-{number}") for number in numbers]
    for path in paths:
        storage.write(path, "{}", {"x": np.arange(8.0)})
    write_state(str(folder), FolderState({path: float(i) for i, path in enumerate(paths)}))
    return paths


def test_newest_is_the_last_that_was_saved(tmp_path: Path) -> None:
    paths = folder_with(tmp_path, 9, 10, 2)
    assert latest_checkpoint(tmp_path) == paths[-1]
    assert latest_checkpoint(tmp_path / "nothing") is None


def test_folder_can_be_moved(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    folder_with(tmp_path / "old", 1)
    (tmp_path / "old").rename(tmp_path / "new")
    assert latest_checkpoint(tmp_path / "new") == str(tmp_path / "new" / "ckpt-1")


def test_damaged_newest_falls_back_to_the_one_before(tmp_path: Path) -> None:
    paths = folder_with(tmp_path, 1, 2, 3)
    file_names.file_of(paths[2]).write_bytes(storage.read(paths[2])[:-1])
    file_names.file_of(paths[1]).unlink()
    with pytest.warns(UserWarning, match="newest checkpoint that is not damaged") as caught:
        assert latest_checkpoint(tmp_path) == paths[0]
    said = [str(warning.message).splitlines()[0] for warning in caught]
    assert f"'{paths[2]}' is damaged" in said[0]
    assert f"'{paths[1]}' cannot be read" in said[1]


def test_the_file_is_that_of_tensorflow(tmp_path: Path) -> None:
    (first, second) = folder_with(tmp_path, 1, 2)
    write_state(str(tmp_path), FolderState({first: 4.5, second: 7.0}, last_preserved=3.0))
    lines = (tmp_path / "checkpoint").read_text().splitlines()
    assert lines == [
        'model_checkpoint_path: "ckpt-2"',
        'all_model_checkpoint_paths: "ckpt-1"',
        'all_model_checkpoint_paths: "ckpt-2"',
        "all_model_checkpoint_timestamps: 4.5",
        "all_model_checkpoint_timestamps: 7.0",
        "last_preserved_timestamp: 3.0",
    ]
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n')
    assert read_state(str(tmp_path)) == FolderState({first: 0.0})
    write_state(str(tmp_path), FolderState())
    assert read_state(str(tmp_path)) == FolderState()


@pytest.mark.parametrize("text", ["model_checkpoint_path: ckpt\n", "{}", "[1]", ""])
def test_state_that_cannot_be_understood_counts_the_files(tmp_path: Path, text: str) -> None:
    paths = folder_with(tmp_path, 2, 10)
    (tmp_path / "checkpoint").write_text(text)
    with pytest.warns(UserWarning, match="checkpoint cannot be understood"):
        assert latest_checkpoint(tmp_path) == paths[1]


def test_state_does_not_list_what_is_gone(tmp_path: Path) -> None:
    paths = folder_with(tmp_path, 1, 2)
    file_names.file_of(paths[0]).unlink()
    write_state(str(tmp_path), FolderState(dict.fromkeys(paths, 5.0), last_preserved=3.0))
    assert read_state(str(tmp_path)) == FolderState({paths[1]: 5.0}, 3.0)
