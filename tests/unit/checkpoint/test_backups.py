from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stratagem.checkpoint import file_names, storage
from stratagem.checkpoint.backups import Backups
from stratagem.checkpoint.blocks import Blocks, as_json
from stratagem.checkpoint.collective_io import Turn
from stratagem.checkpoint.part import Part
from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.core.errors import CheckpointError


def part(backups: Backups, arrays: dict[str, np.ndarray]) -> Part:
    """Return what a process on its own writes."""
    return Part(Turn(True, backups.next_path()), arrays)


def test_the_newest_two_are_kept_and_listed(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path / "backup"))
    backups.open()
    for number in range(3):
        backups.commit({"epoch": number}, part(backups, {"x": np.full(2, number)}))
    backups.commit_behind({"epoch": 3}, part(backups, {"x": np.full(2, 3)}))
    assert backups.wait() is None

    files = sorted(file.name for file in (tmp_path / "backup").iterdir())
    assert files == ["backup-3.safetensors", "backup-4.safetensors", "checkpoint", "lock"]
    backups.close()
    assert not (tmp_path / "backup" / "lock").exists()
    newest = latest_checkpoint(backups.folder)
    assert newest == backups.newest()
    assert newest == str(tmp_path / "backup" / "backup-4")
    contents = storage.decode(storage.read(newest), newest)
    assert contents.metadata == {"epoch": 3}
    assert contents.arrays["x"].tolist() == [3, 3]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path))
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    backups.open()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CheckpointError, match=r"holds something else: notes\.txt"):
        backups.open()
    assert not (tmp_path / "lock").exists()


def test_a_list_that_is_gone_does_not_begin_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backups = Backups(str(tmp_path))
    for number in range(12):
        backups.commit({}, part(backups, {"x": np.full(1, number)}))
    (tmp_path / "checkpoint").unlink()
    backups.open()
    assert backups.newest() == str(tmp_path / "backup-12")
    assert "has backups but no list of them" in caplog.text
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    assert backups.newest() == str(tmp_path / "backup-13")
    backups.close()


@pytest.mark.filterwarnings("ignore:The checkpoint .* is damaged:UserWarning")
def test_backups_of_which_none_is_whole_are_an_error(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path))
    for _ in range(2):
        backups.commit({}, part(backups, {"x": np.zeros(1)}))
    for file in tmp_path.glob("backup-*"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"All 2 backups in .* are damaged or missing"):
        backups.newest()
    backups.close()


def test_backups_elsewhere_are_neither_used_nor_deleted(tmp_path: Path) -> None:
    other, own = Backups(str(tmp_path / "a")), Backups(str(tmp_path / "b"))
    for backups in (other, own):
        backups.commit({}, part(backups, {"x": np.zeros(1)}))
    (tmp_path / "b" / "checkpoint").write_text('model_checkpoint_path: "../a/backup-1"\n')
    with pytest.raises(CheckpointError, match=r"names '\.\./a/backup-1', which lies outside the folder"):
        own.open()
    assert other.newest() == str(tmp_path / "a" / "backup-1")
    other.close()


def test_clearing_deletes_the_backups_alone(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path / "backup"))
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    (tmp_path / "backup" / "notes.txt").touch()
    backups.clear()
    assert [file.name for file in (tmp_path / "backup").iterdir()] == ["notes.txt"]
    (tmp_path / "backup" / "notes.txt").unlink()
    backups.clear()
    assert not (tmp_path / "backup").exists()


def numbered(folder: Path, *numbers: int) -> Backups:
    """Return backups that lie in a folder, the epoch of each being its number."""
    backups = Backups(str(folder))
    for number in range(1, max(numbers) + 1):
        backups.commit({"epoch": number}, part(backups, {"x": np.zeros(1)}))
    assert sorted(file.name for file in folder.glob("backup-*")) == [f"backup-{n}.safetensors" for n in numbers]
    backups.close()
    return backups


def write_list(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "checkpoint").write_text(text)


def cut_list(folder: Path) -> None:
    file = folder / "checkpoint"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def double_list(folder: Path) -> None:
    write_list((folder / "checkpoint").read_text() * 2)(folder)


def link_newest(target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "backup-3.safetensors").unlink()
        (folder / "backup-3.safetensors").symlink_to(target)

    return change


@pytest.mark.filterwarnings("ignore:.*(cannot be understood|cannot be read|is damaged):UserWarning")
@pytest.mark.parametrize(
    ("change", "newest"),
    [
        pytest.param(cut_list, 3, id="list cut in the middle"),
        pytest.param(double_list, 3, id="list with everything twice"),
        pytest.param(write_list('model_checkpoint_path: "backup-9"\n'), 3, id="list of backups that are lost"),
        pytest.param(write_list('model_checkpoint_path: "sub/backup-9"\n'), 3, id="list of a folder below"),
        pytest.param(write_list('model_checkpoint_path: ""\n'), 3, id="list of nothing"),
        pytest.param(write_list('model_checkpoint_path: "a"\nlast_preserved_timestamp: {}'), 3, id="list of no number"),
        pytest.param(write_list('model_checkpoint_path: "backup-2"\n'), 3, id="backup newer than the list"),
        pytest.param(lambda folder: (folder / "backup-3.safetensors").unlink(), 2, id="newest lost"),
        pytest.param(lambda folder: (folder / "backup-7.safetensors").write_bytes(b"half"), 3, id="half a newer one"),
        pytest.param(link_newest("nowhere"), 2, id="link to nowhere"),
        pytest.param(link_newest("backup-3.safetensors"), 2, id="link to itself"),
    ],
)
def test_the_newest_that_is_whole_is_found_and_more_are_written(
    tmp_path: Path, change: Callable[[Path], object], newest: int
) -> None:
    backups = numbered(tmp_path, 2, 3)
    change(tmp_path)
    backups.open()
    assert backups.newest() == str(tmp_path / f"backup-{newest}")
    for _ in range(2):
        backups.commit({}, part(backups, {"x": np.zeros(1)}))
    kept = sorted(file.name for file in tmp_path.glob("backup-*"))
    assert kept == [Path(f"{backups.newest()}.safetensors").with_name(name).name for name in kept]
    assert len(kept) == 2
    backups.clear()
    assert not tmp_path.exists()


def test_a_number_that_has_no_next_one_is_refused(tmp_path: Path) -> None:
    backups = numbered(tmp_path, 1)
    (tmp_path / f"backup-{'9' * 230}.safetensors").touch()
    with pytest.raises(CheckpointError, match=r"holds something else: backup-9{230}\.safetensors"):
        backups.open()


def test_what_cannot_be_deleted_does_not_undo_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backups = numbered(tmp_path, 1)
    (tmp_path / "backup-1.safetensors").unlink()
    (tmp_path / "backup-1.safetensors").mkdir()
    backups.clear()
    assert f"Training has ended, but its backups in {tmp_path} could not be deleted" in caplog.text
    assert "it would continue from them. [Errno " in caplog.text


def test_a_folder_that_goes_while_training_is_made_again(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path / "backup"))
    backups.open()
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    (tmp_path / "backup").rename(tmp_path / "elsewhere")
    other = Backups(str(tmp_path / "backup"))
    other.open()
    backups.commit_behind({}, part(backups, {"x": np.zeros(1)}))
    assert "another run's: another `fit` of this process has" in str(backups.wait())
    backups.clear()
    other.commit({}, part(other, {"x": np.zeros(1)}))
    other.close()
    backups.open()
    assert backups.newest() == str(tmp_path / "backup" / "backup-1")
    backups.close()
    assert sorted(os.listdir(tmp_path)) == ["backup", "elsewhere"]


def test_files_of_workers_are_deleted_with_their_backups_and_those_of_nobody_too(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path))
    backups.open()
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    shards = [file_names.shard_file(tmp_path / f"backup-{number}", "00aa", 0, 2) for number in (1, 7)]
    for file in shards:
        file.touch()
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    assert [file.exists() for file in shards] == [True, False]  # no checkpoint has the second
    backups.commit({}, part(backups, {"x": np.zeros(1)}))
    assert not shards[0].exists()
    shards[1].touch()
    backups.open()  # it holds nothing else
    backups.clear()
    assert not tmp_path.exists()


@pytest.mark.filterwarnings("ignore:The checkpoint .* is damaged:UserWarning")
def test_a_backup_with_a_damaged_file_of_a_worker_is_passed_over(tmp_path: Path) -> None:
    backups = Backups(str(tmp_path))
    blocks = Blocks(np.dtype("float32"), (2,), (1,), (0,))
    for number in (1, 2):
        path, said = str(tmp_path / f"backup-{number}"), {"attempt": "00aa", "number": 0, "files": 1}
        storage.write_shard(file_names.shard_file(path, "00aa", 0, 1), said, {"x/0": np.zeros(2, np.float32)})
        storage.write(path, "{}", {}, as_json("00aa", 1, {"x": blocks}))
    assert backups.newest() == str(tmp_path / "backup-2")
    file = file_names.shard_file(tmp_path / "backup-2", "00aa", 0, 1)
    file.write_bytes(file.read_bytes()[:-1])
    assert backups.newest() == str(tmp_path / "backup-1")
