"""One checkpoint, one file: the layout, damage, and what a failed write leaves."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.checkpoint import storage
from stratagem.core.errors import CheckpointError, InputError

ARRAYS = {
    "half": np.arange(5, dtype=jnp.bfloat16),
    "flags": np.array([True, False, True]),
    "scalar": np.float32(2.5).reshape(()),
    "empty": np.zeros((0, 3), np.float64),
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "counts": np.array([1, -2], np.int64),
}


def written(folder: Path) -> str:
    path = str(folder / "ckpt-1")
    storage.write(path, json.dumps({"nodes": ["x"]}), ARRAYS)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    contents = storage.decode(storage.read(path), path)
    assert contents.metadata == {"nodes": ["x"]}
    assert set(contents.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert contents.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(contents.arrays[name], array)
    assert [file.name for file in tmp_path.iterdir()] == ["ckpt-1.safetensors"]


def test_layout_is_that_of_safetensors(tmp_path: Path) -> None:
    blob = storage.read(written(tmp_path))
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    assert length % 8 == 0
    assert header.pop("__metadata__").keys() == {"stratagem"}
    ends = 0
    for entry in header.values():
        assert entry["data_offsets"][0] == ends
        ends = entry["data_offsets"][1]
    assert 8 + length + ends == len(blob)


def test_cut_or_changed_anywhere_is_no_checkpoint(tmp_path: Path) -> None:
    blob = storage.read(written(tmp_path))
    for at in range(0, len(blob), 10):
        changed = bytearray(blob)
        changed[at] ^= 0x10
        for damaged in (blob[:at], bytes(changed)):
            with pytest.raises(CheckpointError, match="'ckpt-1' is damaged"):
                storage.decode(damaged, "ckpt-1")


def test_foreign_safetensors_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    blob = bytearray(storage.read(path).replace(b'"stratagem":', b'"something":'))
    blob[-4:] = storage.zlib.crc32(blob[:-4]).to_bytes(4, "little")
    with pytest.raises(CheckpointError, match="not a checkpoint of Stratagem"):
        storage.decode(bytes(blob), path)


def test_missing_checkpoint_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"latest_checkpoint\(folder\)"):
        storage.read(str(tmp_path / "ckpt-9"))
    storage.mark(tmp_path / "ckpt-9")
    with pytest.raises(CheckpointError, match=r"latest_checkpoint\(folder\)"):
        storage.read(str(tmp_path / "ckpt-9"))
    storage.remove(tmp_path / "ckpt-9")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "ckpt-9.index").touch()
    with pytest.raises(CheckpointError, match="a checkpoint of TensorFlow"):
        storage.read(str(tmp_path / "ckpt-9"))


def test_dtype_that_has_no_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="spectrum has dtype complex64"):
        storage.write(str(tmp_path / "ckpt-1"), "{}", {"spectrum": np.zeros(2, np.complex64)})
    assert list(tmp_path.iterdir()) == []


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    before = storage.read(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"ckpt-1.safetensors could not be written: .*No space left on device"):
        storage.write(path, "{}", {})
    assert storage.read(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["ckpt-1.safetensors"]


def test_draft_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".ckpt-1.safetensors.1234.tmp").write_bytes(b"half a checkpoint")
    written(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["ckpt-1.safetensors"]


def _forged(header: bytes, length: int | None = None) -> bytes:
    """Return a file with a right checksum and a header of one's own."""
    body = (len(header) if length is None else length).to_bytes(8, "little") + header + bytes(16)
    return body + storage.zlib.crc32(body).to_bytes(4, "little")


_METADATA = '"__metadata__": {"stratagem": "{}"}, "__crc32__": {}'


@pytest.mark.parametrize(
    "blob",
    [
        _forged(b"", 2**63),
        _forged(b"[]"),
        _forged(b"null"),
        _forged(b"{}"),
        _forged(b"\xff{}"),
        _forged(b"[" * 100_000),
        _forged(b'{"__metadata__": 3}'),
        _forged(b'{"__metadata__": {"stratagem": 3}}'),
        _forged(b'{"__metadata__": {"stratagem": "{"}}'),
        _forged(b'{"__metadata__": {"stratagem": "{}"}}'),
        *(
            _forged(f'{{{_METADATA}, "x": {entry}}}'.encode())
            for entry in (
                "3",
                "{}",
                '{"dtype": "F32", "shape": [4]}',
                '{"dtype": "F31", "shape": [4], "data_offsets": [0, 16]}',
                '{"dtype": "F32", "shape": [3], "data_offsets": [0, 16]}',
                '{"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}',
                '{"dtype": "F32", "shape": ["a"], "data_offsets": [0, 16]}',
                '{"dtype": "F32", "shape": [4], "data_offsets": ["a", "b"]}',
                '{"dtype": "F32", "shape": [1e300], "data_offsets": [0, 16]}',
                '{"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]}',
            )
        ),
    ],
)
def test_a_forged_file_with_a_right_checksum_is_an_error(blob: bytes) -> None:
    assert storage.is_whole(blob)
    with pytest.raises(CheckpointError, match="is not a checkpoint of Stratagem"):
        storage.decode(blob, "forged")
