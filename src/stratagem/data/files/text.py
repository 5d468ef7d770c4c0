"""Lines of text: by position where files are not compressed, else in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stratagem.data.files.byte_file import BYTES, ByteFile
from stratagem.data.files.compressed import checked_compression, decompressed
from stratagem.data.files.dataset import FileDataset
from stratagem.data.specs import TensorSpec

_BLOCK = 1 << 20
_NEWLINE = ord("\n")


class TextLineDataset(FileDataset):
    r"""The lines of text files as bytes (`tf.data.TextLineDataset`).

    A line has neither its newline nor carriage returns before that; the last needs no newline. Uncompressed files
    are read by position: each is read once when its number of lines is first needed, and 8 bytes a line are kept.

    Args:
        filenames: A name, a list of names, or a dataset of names; the lines come file after file.
        compression_type: "GZIP", "ZLIB", or None. Compressed files are read in order.
        buffer_size: Accepted for tf.data's sake.
        num_parallel_reads: Accepted for tf.data's sake, where it mixes the files. Here `Dataset.interleave` does.

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
    ) -> None:
        compression = checked_compression(compression_type)
        super().__init__(filenames, _Lines() if compression is None else _StreamedLines(compression))


class _Lines:
    """Uncompressed lines. Of a scanned file is kept where each line begins, and where the last one ends."""

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

    def open(self, path: str, layout: np.ndarray) -> _OpenLines:
        return _OpenLines(ByteFile(path), layout)

    def spec(self, path: str) -> TensorSpec:
        return BYTES


class _OpenLines:
    def __init__(self, file: ByteFile, edges: np.ndarray) -> None:
        self._file = file
        self._edges = edges

    def take(self, index: np.ndarray) -> np.ndarray:
        lines = np.empty(len(index), object)
        pieces = self._file.pieces(self._edges[index], self._edges[index + 1])
        for row, (buffer, first, last) in enumerate(pieces):
            lines[row] = _without_end(buffer[first:last])
        return lines


class _StreamedLines:
    """Compressed lines."""

    def __init__(self, compression_type: str) -> None:
        self._compression_type = compression_type

    def read(self, path: str) -> Iterator[bytes]:
        begun = []
        for piece in decompressed(path, self._compression_type):
            *lines, rest = piece.split(b"\n")
            if lines:
                begun.append(lines[0])
                yield _without_end(b"".join(begun))
                yield from map(_without_end, lines[1:])
                begun = []
            begun.append(rest)
        if last := b"".join(begun):
            yield _without_end(last)


def _without_end(line: bytes) -> bytes:
    return line.rstrip(b"\n").rstrip(b"\r")
