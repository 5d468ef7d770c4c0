"""Records of one length."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data import FixedLengthRecordDataset


@pytest.fixture(params=[None, "GZIP"])
def kind(request: pytest.FixtureRequest) -> str | None:
    return request.param


def write(path: Path, kind: str | None, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if kind else content)
    return path


def test_records(tmp_path: Path, kind: str | None) -> None:
    first = write(tmp_path / "a", kind, b"HHabcdefF")
    second = write(tmp_path / "b", kind, b"HHgh\0F")
    dataset = FixedLengthRecordDataset([first, second], 3, 2, None, compression_type=kind)
    with pytest.raises(InputError, match=r"a has 9 bytes: a header of 2, a footer of 0, .* no multiple of 3"):
        list(dataset)
    dataset = FixedLengthRecordDataset([first, second], 3, 2, 1, compression_type=kind)
    assert list(dataset.as_numpy_iterator()) == [b"abc", b"def", b"gh\0"]
    dataset = FixedLengthRecordDataset(first, 2, 2, 1, compression_type=kind)
    assert list(dataset.as_numpy_iterator()) == [b"ab", b"cd", b"ef"]
    empty = write(tmp_path / "empty", kind, b"HHF")
    assert list(FixedLengthRecordDataset(empty, 2, 2, 1, compression_type=kind)) == []


def test_file_shorter_than_header_and_footer(tmp_path: Path, kind: str | None) -> None:
    with pytest.raises(InputError, match="a has 2 bytes"):
        list(FixedLengthRecordDataset(write(tmp_path / "a", kind, b"HH"), 1, 2, 1, compression_type=kind))


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="record_bytes is 0"):
        FixedLengthRecordDataset("a", 0)
    with pytest.raises(InputError, match="header_bytes is -1"):
        FixedLengthRecordDataset("a", 1, -1)
