"""Bytes by position: neighbours come with one read, and faults of the file are named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data.files.byte_file import ByteFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 64)
    return path


def test_neighbours_come_in_one_buffer(path: Path) -> None:
    file = ByteFile(str(path))
    starts, ends = np.array([0, 4, 12000, 2]), np.array([4, 6, 12002, 3])
    pieces = list(file.pieces(starts, ends))
    contents = path.read_bytes()
    assert [buffer[first:last] for buffer, first, last in pieces] == [
        contents[start:end] for start, end in zip(starts, ends, strict=True)
    ]
    assert [len(buffer) for buffer, _, _ in pieces] == [6, 6, 2, 1]


def test_a_file_that_was_cut_short(path: Path) -> None:
    file = ByteFile(str(path))
    os.truncate(path, 100)
    assert file.read(90, 10) == bytes(range(90, 100))
    with pytest.raises(InputError, match=r"ends at byte 100; it had 16384 bytes when it was opened"):
        file.read(90, 11)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder.*\n.*glob"):
        ByteFile(str(tmp_path))
    with pytest.raises(InputError, match="No such file"):
        ByteFile(str(tmp_path / "missing"))
