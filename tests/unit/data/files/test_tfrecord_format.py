"""Layout of a record, and the search for intact ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratagem.data.files import tfrecord_format
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.tfrecord_format import HEADER_BYTES, data_of, framed, next_intact, size_of


def test_a_record_has_sixteen_bytes_round_its_data() -> None:
    record = framed(b"three")
    assert len(record) == 21
    assert size_of(record[:HEADER_BYTES]) == 21
    assert data_of(b"#" + record, 1, 22) == b"three"


def test_changes_are_found() -> None:
    record = bytearray(framed(b"three"))
    record[14] ^= 1
    assert size_of(bytes(record[:HEADER_BYTES])) == 21
    assert data_of(bytes(record), 0, 21) is None
    record[0] ^= 1
    assert size_of(bytes(record[:HEADER_BYTES])) is None
    assert size_of(bytes(record[: HEADER_BYTES - 1])) is None


@pytest.mark.parametrize("block", [13, 32, 1 << 18])
@pytest.mark.parametrize("gap", [b"", b"\0" * 70, bytes(range(256)), framed(b"damaged")[:-1] + b"?"])
def test_the_next_intact_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: bytes, block: int) -> None:
    monkeypatch.setattr(tfrecord_format, "_BLOCK", block)
    path = tmp_path / "file"
    path.write_bytes(gap + framed(b"one") + framed(b""))
    file = ByteFile(str(path))
    assert next_intact(file, 0) == len(gap)
    assert next_intact(file, len(gap) + 1) == len(gap) + 19
    assert next_intact(file, len(gap) + 20) == file.size


def test_no_intact_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text that is no record " * 9)
    assert next_intact(ByteFile(str(tmp_path / "file")), 0) == 23 * 9
