"""Lines of text, as TensorFlow divides them, and records of one length."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data import FixedLengthRecordDataset, TextLineDataset


@pytest.mark.parametrize(
    ("content", "expected"),
    [  # what tf.data 2.21 gives for the same bytes
        (b"a\r\nb\n\nlast\r", [b"a", b"b", b"", b"last"]),
        (b"", []),
        (b"\n", [b""]),
        (b"x\r\r\ny", [b"x", b"y"]),
        (b"no end", [b"no end"]),
        (b"zero\0\n\0", [b"zero\0", b"\0"]),
    ],
)
def test_lines(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    for name, kind, packed in (
        ("plain", None, content),
        ("gzip", "GZIP", gzip.compress(content)),
        ("zlib", "ZLIB", zlib.compress(content)),
    ):
        (tmp_path / name).write_bytes(packed)
        assert list(TextLineDataset(tmp_path / name, kind).as_numpy_iterator()) == expected


def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"%d" % n * (n % 7) for n in range(300)]
    content = b"\n".join(lines)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for block in (1, 5, 64):
        monkeypatch.setattr("stratagem.data.files.lines._BLOCK", block)
        monkeypatch.setattr("stratagem.data.files.byte_file._PIECE", block)
        assert list(TextLineDataset([tmp_path / "a"]).as_numpy_iterator()) == lines
        assert list(TextLineDataset([tmp_path / "a.gz"], "GZIP").as_numpy_iterator()) == lines
    dataset = TextLineDataset([tmp_path / "a"])
    order = [int(i) for i in dataset.range(300).shuffle(300, seed=1)]
    assert list(dataset.shuffle(300, seed=1).as_numpy_iterator()) == [lines[i] for i in order]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing cannot be read"):
        list(TextLineDataset(tmp_path / "missing"))
    (tmp_path / "a").write_text("text")
    with pytest.raises(InputError, match="cannot be decompressed as GZIP"):
        list(TextLineDataset(tmp_path / "a", "GZIP"))


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
    with pytest.raises(InputError, match=r"a has 9 bytes: a header of 2, a footer of 0, .* not a multiple of 3"):
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
