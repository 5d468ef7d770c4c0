"""Arrays in files of several workers: what is read of them, and what is no part of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stratagem.checkpoint import file_names, shard_files, storage
from stratagem.checkpoint.blocks import Blocks, as_json, block_name, own_blocks
from stratagem.checkpoint.shard_files import Divided, load, load_whole
from stratagem.core.errors import CheckpointError

ATTEMPT = "0123456789ab"
ROWS, COLUMNS = np.arange(48, dtype=np.float32).reshape(8, 6), np.arange(40, dtype=np.int32).reshape(2, 20)
BLOCKS = {
    "rows": Blocks(np.dtype("float32"), (8, 6), (2, 1), (0, 1)),
    "columns": Blocks(np.dtype("int32"), (2, 20), (1, 4), (0, 0, 1, 1)),
}


def written(folder: Path, attempt: str = ATTEMPT, arrays: Any = None) -> str:
    """Write what two workers do, and return the path."""
    path, arrays = str(folder / "ckpt-1"), arrays or {"rows": ROWS, "columns": COLUMNS}
    for worker in range(2):
        own = {
            block_name(name, number): arrays[name][box]
            for name, blocks in BLOCKS.items()
            for number, box in enumerate(blocks.boxes())
            if blocks.workers[number] == worker
        }
        said = {"attempt": attempt, "number": worker, "files": 2}
        storage.write_shard(file_names.shard_file(path, attempt, worker, 2), said, own)
    storage.write(path, "{}", {"scalar": np.float32(1.5).reshape(())}, as_json(attempt, 2, BLOCKS))
    return path


def test_what_was_written_in_blocks_is_read_whole_and_in_parts(tmp_path: Path) -> None:
    arrays = load(written(tmp_path)).arrays
    assert set(arrays) == {"scalar", "rows", "columns"}
    for name, expected in (("rows", ROWS), ("columns", COLUMNS)):
        found = arrays[name]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(np.asarray(found), expected)
        for box in (
            (slice(1, 2), slice(None)),
            (slice(0, 2), slice(3, 6)),
            (slice(1, 2), slice(4, 6)),
            (slice(0, 0),) * 2,
        ):
            np.testing.assert_array_equal(found[box], expected[box])
    np.testing.assert_array_equal(arrays["rows"][3:5, 1:4], ROWS[3:5, 1:4])  # of both files
    np.testing.assert_array_equal(arrays["columns"][:, 4:16], COLUMNS[:, 4:16])


def test_only_the_rows_that_are_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    original = shard_files.ShardFile.read

    def noting(self: Any, name: str, box: Any) -> np.ndarray:
        part = original(self, name, box)
        read.append((name, part.nbytes))
        return part

    monkeypatch.setattr(shard_files.ShardFile, "read", noting)
    found = load(written(tmp_path)).arrays["rows"]
    np.testing.assert_array_equal(found[2:4, :], ROWS[2:4])
    assert read == [("rows/0", 2 * 6 * 4)]


def test_every_device_gets_its_part(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("replica",))
    found = load(written(tmp_path)).arrays["rows"]
    for value in (found, ROWS):
        placed = shard_files.placed_like(value, NamedSharding(mesh, PartitionSpec("replica")))
        np.testing.assert_array_equal(np.asarray(placed), ROWS)
        assert [shard.data.shape for shard in placed.addressable_shards] == [(4, 6), (4, 6)]


@pytest.mark.parametrize("spec", [("replica", None), (None, "replica"), ("model", "replica"), ("model", None)])
def test_blocks_are_those_of_the_devices(spec: tuple[str | None, ...]) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("replica", "model"))
    value = jax.device_put(np.arange(32.0).reshape(8, 4), NamedSharding(mesh, PartitionSpec(*spec)))
    blocks = Blocks.of(value)
    own = own_blocks("x", value, blocks, 0)
    assert blocks.grid == tuple(1 if axis is None else 2 for axis in spec)
    assert set(blocks.workers) == {0}  # one process has all devices
    for number, box in enumerate(blocks.boxes()):
        np.testing.assert_array_equal(own[f"x/{number}"], np.asarray(value)[box])
    assert len(own) == len(blocks.workers)


def test_of_two_attempts_the_one_that_is_listed_counts(tmp_path: Path) -> None:
    path = written(tmp_path)
    later = "ba9876543210"
    for worker in range(2):  # of an attempt that was cut short before the chief wrote
        said = {"attempt": later, "number": worker, "files": 2}
        storage.write_shard(file_names.shard_file(path, later, worker, 2), said, {"rows/0": ROWS[:4] + 1})
    np.testing.assert_array_equal(np.asarray(load_whole(path).arrays["rows"]), ROWS)
    written(tmp_path, "00ff00ff00ff", {"rows": ROWS + 2, "columns": COLUMNS})
    np.testing.assert_array_equal(np.asarray(load_whole(path).arrays["rows"]), ROWS + 2)
    assert len(list(tmp_path.iterdir())) == 3  # of the other two attempts nothing is left
    storage.write(path, "{}", {})
    assert [file.name for file in tmp_path.iterdir()] == ["ckpt-1.safetensors"]


def test_files_of_another_attempt_do_not_pass_under_its_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    said = {"attempt": "ba9876543210", "number": 1, "files": 2}
    storage.write_shard(file_names.shard_file(path, ATTEMPT, 1, 2), said, {"rows/1": ROWS[4:]})
    with pytest.raises(CheckpointError, match=r"is not a part of this checkpoint.*ba9876543210"):
        load_whole(path)


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


@pytest.mark.parametrize("change", [damage, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])])
def test_a_file_that_is_damaged_or_gone_is_named(tmp_path: Path, change: Any) -> None:
    path = written(tmp_path)
    file = file_names.shard_file(path, ATTEMPT, 1, 2)
    assert shard_files.fault_in(path) is None
    change(file)
    assert file.name in str(shard_files.fault_in(path))
    with pytest.raises(CheckpointError, match=rf"{file.name}, one worker's part of a checkpoint"):
        load_whole(path)
    arrays = load(path).arrays
    np.testing.assert_array_equal(arrays["rows"][:4, :], ROWS[:4])  # of the other file
    with pytest.raises(CheckpointError, match=file.name):
        arrays["rows"][4:5, :]


def test_a_file_that_is_deleted_while_it_is_used_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path)
    contents = load_whole(path)
    for worker in range(2):
        file_names.shard_file(path, ATTEMPT, worker, 2).unlink()
    with pytest.raises(CheckpointError, match="no process deletes checkpoints during a restore"):
        np.asarray(contents.arrays["rows"])


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": "../../x"},
        {"attempt": 3},
        {"files": "two"},
        {"files": 1},
        {"files": 10**12},
        {"layouts": [{"grid": [2], "workers": [0, 1]}]},
        {"layouts": [{"grid": [0, 1], "workers": []}]},
        {"layouts": [{"grid": [3, 1], "workers": [0, 1, 0]}]},
        {"arrays": {"rows": {"dtype": "F31", "shape": [8, 6], "layout": 0}}},
        {"arrays": {"rows": {"dtype": "F32", "shape": [8, 6], "layout": 7}}},
        {"arrays": [1]},
    ],
)
def test_a_list_that_was_forged_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    path = str(tmp_path / "ckpt-1")
    said = as_json(ATTEMPT, 2, {"rows": BLOCKS["rows"]})
    storage.write(path, "{}", {}, {**said, **change})
    with pytest.raises(CheckpointError, match="is not a part of this checkpoint"):
        load(path)


def test_one_workers_file_is_no_checkpoint(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of Stratagem"):
        load(str(file_names.shard_file(path, ATTEMPT, 0, 2)))


def test_an_array_without_elements_or_axes_has_its_shape() -> None:
    empty = Divided("x", Blocks(np.dtype("float32"), (0, 3), (1, 1), (0,)), [])
    assert np.asarray(empty).shape == (0, 3)
