"""Files whose records all have one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.files.byte_file import BYTES, ByteFile
from stratagem.data.files.compressed import ByteStream, checked_compression, decompressed
from stratagem.data.files.dataset import FileDataset
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import objects


class FixedLengthRecordDataset(FileDataset):
    """The records of files in which all have one length, as bytes (`tf.data.FixedLengthRecordDataset`).

    Args:
        filenames: A name, a list of names, or a dataset of names; the records come file after file.
        record_bytes: Bytes of a record.
        header_bytes: Bytes to leave out at the beginning of each file.
        footer_bytes: Bytes to leave out at the end of each file.
        buffer_size: Accepted for tf.data's sake.
        compression_type: "GZIP", "ZLIB", or None, which alone can be read by position.
        num_parallel_reads: Accepted for tf.data's sake, where it mixes the files. Here `Dataset.interleave` does.

    Raises:
        InputError: An argument is wrong. While reading: a file is missing, or does not divide into such records.

    Example:
        >>> file = getfixture("tmp_path") / "pairs"
        >>> _ = file.write_bytes(b"#aabbcc")
        >>> list(FixedLengthRecordDataset(file, record_bytes=2, header_bytes=1).as_numpy_iterator())
        [b'aa', b'bb', b'cc']
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        compression = checked_compression(compression_type)
        record = check.integer("record_bytes", record_bytes, 1, "Write the number of bytes of a record.")
        header = check.integer("header_bytes", header_bytes or 0, 0, "Write a number of bytes, or None.")
        footer = check.integer("footer_bytes", footer_bytes or 0, 0, "Write a number of bytes, or None.")
        lengths = _Lengths(header, record, footer)
        super().__init__(
            filenames, _FixedLength(lengths) if compression is None else _StreamedFixedLength(lengths, compression)
        )


class _Lengths(NamedTuple):
    header: int
    record: int
    footer: int

    def records(self, path: str, size: int) -> int:
        """Return how many records a file of `size` bytes has."""
        count, left = divmod(size - self.header - self.footer, self.record)
        if count >= 0 and not left:
            return count
        raise InputError(
            f"{path} has {size} bytes: a header of {self.header}, a footer of {self.footer}, and what is between "
            f"is no multiple of {self.record}.",
            "Correct record_bytes, header_bytes and footer_bytes, or copy the file again.",
        )


class _FixedLength:
    """Uncompressed records."""

    def __init__(self, lengths: _Lengths) -> None:
        self._lengths = lengths

    def scan(self, path: str) -> tuple[int, None]:
        return self._lengths.records(path, ByteFile(path).size), None

    def open(self, path: str, layout: None) -> _OpenFixedLength:
        return _OpenFixedLength(ByteFile(path), self._lengths)

    def spec(self, path: str) -> TensorSpec:
        return BYTES


class _OpenFixedLength:
    def __init__(self, file: ByteFile, lengths: _Lengths) -> None:
        self._file = file
        self._lengths = lengths

    def take(self, index: np.ndarray) -> np.ndarray:
        starts = self._lengths.header + index * self._lengths.record
        pieces = self._file.pieces(starts, starts + self._lengths.record)
        return objects([buffer[first:last] for buffer, first, last in pieces])


class _StreamedFixedLength:
    """Compressed records."""

    def __init__(self, lengths: _Lengths, compression_type: str) -> None:
        self._lengths = lengths
        self._compression_type = compression_type

    def read(self, path: str) -> Iterator[bytes]:
        header, record, footer = self._lengths
        stream = ByteStream(decompressed(path, self._compression_type))
        stream.read(header)
        ahead = stream.read(record + footer)  # the end of the file must not be taken for a record
        while len(ahead) == record + footer:
            yield ahead[:record]
            ahead = ahead[record:] + stream.read(record)
        self._lengths.records(path, stream.place)
