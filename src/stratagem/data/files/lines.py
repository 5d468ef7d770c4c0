"""Lines of text, and records of one length: by position where files are not compressed, else in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.dataset import BytesFormat, FileDataset
from stratagem.data.structure import objects

_BLOCK = 1 << 20
_NEWLINE = ord("\n")


class TextLineDataset(FileDataset):
    r"""The lines of text files as bytes (`tf.data.TextLineDataset`).

    A line does not include its newline, or carriage returns before it. The last line needs no newline. Uncompressed
    files are read by position: each file is read once when its number of lines is first needed, and 8 bytes are kept
    for each line.

    Args:
        filenames: A name, a list of names, or a dataset of names; the lines come file after file.
        compression_type: "GZIP", "ZLIB", or None. Compressed files are read in order.
        buffer_size: Accepted as in tf.data, without effect.
        num_parallel_reads: Accepted without effect. In tf.data it mixes the files; use `Dataset.interleave` for that.
        name: Accepted as in tf.data.

    Raises:
        InputError: An argument is wrong. While reading: a file is missing or cannot be decompressed.

    Example:
        >>> file = getfixture("tmp_path") / "lines.txt"
        >>> _ = file.write_text("one\ntwo\n")
        >>> list(TextLineDataset(file).as_numpy_iterator())
        [b'one', b'two']
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(filenames, _Lines(compression_type))


class _Lines(BytesFormat):
    """Remembers where each line of a scanned file begins, and where the last one ends."""

    def scan(self, path: str) -> tuple[int, np.ndarray]:
        file = ByteFile(path)
        edges = [np.zeros(1, np.int64)]
        for start in range(0, file.size, _BLOCK):
            block = np.frombuffer(file.read(start, min(_BLOCK, file.size - start)), np.uint8)
            edges.append(np.flatnonzero(block == _NEWLINE) + (start + 1))
        found = np.concatenate(edges)
        if found[-1] != file.size:
            found = np.append(found, file.size)  # the last line needs no newline
        return len(found) - 1, found

    def take(self, file: ByteFile, layout: np.ndarray, index: np.ndarray) -> np.ndarray:
        pieces = file.pieces(layout[index], layout[index + 1])
        return objects([_without_end(buffer[first:last]) for buffer, first, last in pieces])

    def records(self, path: str, stream: BinaryIO) -> Iterator[bytes]:
        return map(_without_end, stream)


def _without_end(line: bytes) -> bytes:
    return line.rstrip(b"\n").rstrip(b"\r")


class FixedLengthRecordDataset(FileDataset):
    """The records of files, as bytes, all of one length (`tf.data.FixedLengthRecordDataset`).

    Args:
        filenames: A name, a list of names, or a dataset of names; the records come file after file.
        record_bytes: Number of bytes of a record.
        header_bytes: Number of bytes to skip at the beginning of each file.
        footer_bytes: Number of bytes to skip at the end of each file.
        buffer_size: Accepted as in tf.data, without effect.
        compression_type: "GZIP", "ZLIB", or None. Only uncompressed files can be read by position.
        num_parallel_reads: Accepted without effect. In tf.data it mixes the files; use `Dataset.interleave` for that.
        name: Accepted as in tf.data.

    Raises:
        InputError: An argument is wrong. While reading: a file is missing, or does not divide into records of this
            length.

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
        name: str | None = None,
    ) -> None:
        record = check.integer("record_bytes", record_bytes, 1, "Write the number of bytes of a record.")
        header = check.integer("header_bytes", header_bytes or 0, 0, "Write a number of bytes, or None.")
        footer = check.integer("footer_bytes", footer_bytes or 0, 0, "Write a number of bytes, or None.")
        super().__init__(filenames, _FixedLength(compression_type, header, record, footer))


class _FixedLength(BytesFormat):
    def __init__(self, compression_type: str | None, header: int, record: int, footer: int) -> None:
        super().__init__(compression_type)
        self._header, self._record, self._footer = header, record, footer

    def scan(self, path: str) -> tuple[int, None]:
        return self._count(path, ByteFile(path).size), None

    def take(self, file: ByteFile, layout: None, index: np.ndarray) -> np.ndarray:
        starts = self._header + index * self._record
        pieces = file.pieces(starts, starts + self._record)
        return objects([buffer[first:last] for buffer, first, last in pieces])

    def records(self, path: str, stream: BinaryIO) -> Iterator[bytes]:
        size = len(stream.read(self._header))
        ahead = stream.read(self._record + self._footer)  # the end of the file must not be taken for a record
        while len(ahead) == self._record + self._footer:
            yield ahead[: self._record]
            size += self._record
            ahead = ahead[self._record :] + stream.read(self._record)
        self._count(path, size + len(ahead))

    def _count(self, path: str, size: int) -> int:
        """Return how many records a file of `size` bytes has."""
        count, left = divmod(size - self._header - self._footer, self._record)
        if count >= 0 and not left:
            return count
        raise InputError(
            f"{path} has {size} bytes: a header of {self._header}, a footer of {self._footer}, and the size between "
            f"them is not a multiple of {self._record}.",
            "Correct record_bytes, header_bytes and footer_bytes, or copy the file again.",
        )
