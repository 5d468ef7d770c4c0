"""Compressed bytes come in order, in pieces of any size."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data.files.compressed import ByteStream, checked_compression, compressor, decompressed

CONTENT = bytes(range(256)) * 40


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_what_was_compressed_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, piece: int) -> None:
    monkeypatch.setattr("stratagem.data.files.compressed._PIECE", piece)
    packer = compressor(kind)
    packed = packer.compress(CONTENT) + packer.flush()
    assert (gzip.decompress if kind == "GZIP" else zlib.decompress)(packed) == CONTENT
    (tmp_path / "file").write_bytes(packed + packed)
    pieces = list(decompressed(str(tmp_path / "file"), kind))
    assert b"".join(pieces) == 2 * CONTENT
    assert max(map(len, pieces)) <= piece


def test_damage_is_an_error_behind_what_is_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(CONTENT)[:-3])
    pieces = decompressed(str(tmp_path / "file"), "GZIP")
    assert next(pieces) == CONTENT
    with pytest.raises(InputError, match="its end is missing"):
        next(pieces)
    with pytest.raises(InputError, match="cannot be decompressed as ZLIB"):
        list(decompressed(str(tmp_path / "file"), "ZLIB"))


def test_reading_across_pieces() -> None:
    stream = ByteStream(iter([b"abc", b"", b"d", b"efgh"]))
    assert [stream.read(size) for size in (2, 3, 0, 9, 1)] == [b"ab", b"cde", b"", b"fgh", b""]
    assert stream.place == 8


def test_kinds() -> None:
    assert [checked_compression(kind) for kind in (None, "", "GZIP", "ZLIB")] == [None, None, "GZIP", "ZLIB"]
    with pytest.raises(InputError, match="compression_type is 'ZIP'"):
        checked_compression("ZIP")
