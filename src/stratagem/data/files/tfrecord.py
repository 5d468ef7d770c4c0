"""TFRecord files: by position where they are not compressed, else in order.

A record has its length, a checksum of the length, the data, a checksum of the data. The length has 8 bytes, a checksum
4, all little-endian; a checksum is a masked CRC32C.
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.core.log import announce
from stratagem.data import check
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.dataset import BytesFormat, FileDataset

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")

HEADER_BYTES = _HEADER.size
"""Bytes before the data."""

_AROUND = _HEADER.size + _CHECKSUM.size
_MASK = 0xA282EAD8
_BLOCK = 1 << 18


@cache
def _crc32c() -> Callable[[bytes], int]:
    return optional.load("google_crc32c", "files", "A TFRecord file").value


def _checksum(data: bytes) -> int:
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """Return a record as it stands in a file.

    Example:
        >>> framed(b"ab").hex(" ")
        '02 00 00 00 00 00 00 00 78 27 0b 34 61 62 1c b0 f0 f4'
    """
    length = len(data).to_bytes(8, "little")
    return b"".join((length, _CHECKSUM.pack(_checksum(length)), data, _CHECKSUM.pack(_checksum(data))))


def size_of(header: bytes) -> int | None:
    """Return the number of bytes of the whole record that begins so, None where the length cannot be right."""
    if len(header) < HEADER_BYTES:
        return None
    length, checksum = _HEADER.unpack(header)
    return length + _AROUND if checksum == _checksum(header[:8]) else None


def data_of(buffer: bytes, first: int, last: int) -> bytes | None:
    """Return the data of the record in `buffer[first:last]`, None where they are not what was written."""
    data = buffer[first + _HEADER.size : last - _CHECKSUM.size]
    (checksum,) = _CHECKSUM.unpack_from(buffer, last - _CHECKSUM.size)
    return data if checksum == _checksum(data) else None


def next_intact(file: ByteFile, place: int) -> int:
    """Return where the first intact record at or behind `place` begins, the size of the file if there is none."""
    sizes = cache(size_of)  # damaged stretches repeat themselves: most are zeros
    while place + _AROUND <= file.size:
        block = file.read(place, min(_BLOCK, file.size - place))
        lengths = sliding_window_view(np.frombuffer(block, np.uint8), 8)[: len(block) - HEADER_BYTES + 1]
        fits = np.ascontiguousarray(lengths).view("<u8")[:, 0] <= file.size - place - _AROUND
        for found in np.flatnonzero(fits).tolist():
            size, start = sizes(block[found : found + HEADER_BYTES]), place + found
            if size is not None and start + size <= file.size and data_of(file.read(start, size), 0, size) is not None:
                return start
        place += len(block) - HEADER_BYTES + 1
    return file.size


_MANY = 64
"""Lengths are read in blocks where that many records fit into one, else one by one."""

_LENGTH = "the length has a wrong checksum"
_DATA = "the data has a wrong checksum"
_END = "the end is missing"


class TFRecordDataset(FileDataset):
    """The records of TFRecord files as bytes (`tf.data.TFRecordDataset`).

    Uncompressed files are read by position. So a worker reads only its own records, and a shuffle moves only positions.
    All lengths in a file are read once, when the number of records is first needed (2,000,000 a second). Compressed
    files are read in order. Checksums are verified.

    Args:
        filenames: A name, a list of names, or a dataset of names; the records come file after file.
        compression_type: "GZIP", "ZLIB", or None.
        buffer_size: Accepted as in tf.data, without effect.
        num_parallel_reads: Accepted without effect. In tf.data it mixes the files; use `Dataset.interleave` for that.
        name: Accepted as in tf.data.
        on_corrupt: "error" raises an error at a damaged record; "skip" leaves the record out. To skip, uncompressed
            files are read whole before the first pass, so that all workers count the same records. A file without any
            record is still an error.

    Raises:
        InputError: An argument is wrong. While reading: a file is missing, damaged, or not a TFRecord file; the message
            names the file, the record and the byte.

    Example:
        >>> from stratagem.data.files.writers import TFRecordWriter
        >>> file = getfixture("tmp_path") / "digits.tfrecord"
        >>> with TFRecordWriter(file) as writer:
        ...     writer.write(b"three")
        ...     writer.write(b"four")
        >>> list(TFRecordDataset(file).as_numpy_iterator())
        [b'three', b'four']
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        name: str | None = None,
        *,
        on_corrupt: Literal["error", "skip"] = "error",
    ) -> None:
        check.one_of("on_corrupt", on_corrupt, ("error", "skip"))
        self._format = _TFRecords(compression_type, skip=on_corrupt == "skip")
        super().__init__(filenames, self._format)

    @property
    def skipped_records(self) -> dict[str, int]:
        """Number of skipped records in each file that was read so far.

        If the end of a damaged record is unknown, everything up to the next record counts as one.
        """
        return dict(self._format.skipped)


def _damaged(path: str, record: int, place: int, what: str) -> InputError:
    return InputError(
        f"{path} is damaged, or is not a TFRecord file: {what} in record {record} at byte {place}.",
        "Copy or make the file again; compressed files need compression_type. TFRecordDataset(..., "
        'on_corrupt="skip") leaves damaged records out and counts them.',
    )


class _TFRecords(BytesFormat):
    """Remembers where each record of a scanned file begins and ends, and how many damaged records were left out."""

    def __init__(self, compression_type: str | None, *, skip: bool) -> None:
        super().__init__(compression_type)
        self._skip = skip
        self.skipped: dict[str, int] = {}

    def _count_skipped(self, path: str, records: int) -> None:
        if records and self.skipped.get(path) != records:
            announce(f"{path}: {records} damaged record{'s' if records > 1 else ''} left out (on_corrupt='skip').")
            self.skipped[path] = records

    def scan(self, path: str) -> tuple[int, tuple[np.ndarray, np.ndarray]]:
        file = ByteFile(path)
        starts, gaps = self._walk(file)
        ends = np.append(starts[1:], file.size)[: len(starts)]
        for gap in gaps:
            ends[: np.searchsorted(starts, gap)][-1:] = gap
        if self._skip:
            pieces = file.pieces(starts, ends)
            is_intact = np.fromiter((data_of(*piece) is not None for piece in pieces), bool, len(starts))
            self._count_skipped(path, len(gaps) + int(np.sum(~is_intact)))
            starts, ends = starts[is_intact], ends[is_intact]
        return len(starts), (starts, ends)

    def _walk(self, file: ByteFile) -> tuple[np.ndarray, list[int]]:
        """Go from length to length; return where records begin, and where stretches begin that hold none."""
        starts, gaps = array("q"), []
        sizes: dict[bytes, int | None] = {}  # lengths repeat, and the checksum of one costs more than to look it up
        block, base, place, size = b"", 0, 0, 0
        while place < file.size:
            header = block[place - base : place - base + HEADER_BYTES]
            if len(header) < HEADER_BYTES:
                ahead = _BLOCK if size * _MANY < _BLOCK else HEADER_BYTES
                block, base = file.read(place, min(ahead, file.size - place)), place
                header = block[:HEADER_BYTES]
            if header not in sizes:
                sizes[header] = size_of(header)
            size = sizes[header] or 0
            if size and place + size <= file.size:
                starts.append(place)
                place += size
            else:
                what = _LENGTH if not size and len(header) == HEADER_BYTES else _END
                fault = _damaged(file.path, len(starts), place, what)
                if not self._skip:
                    raise fault
                gaps.append(place)
                place = file.size if size else next_intact(file, place + 1)
                if place == file.size and not size and not starts:
                    raise fault  # nothing in the file is a record: it is something else
        return np.array(starts, np.int64), gaps

    def take(self, file: ByteFile, layout: tuple[np.ndarray, np.ndarray], index: np.ndarray) -> np.ndarray:
        starts, ends = layout
        records = np.empty(len(index), object)
        for row, piece in enumerate(file.pieces(starts[index], ends[index])):
            records[row] = data = data_of(*piece)
            if data is None:
                number = int(index[row])
                raise _damaged(file.path, number, int(starts[number]), _DATA)
        return records

    def records(self, path: str, stream: BinaryIO) -> Iterator[bytes]:
        skipped, place, is_tfrecord = 0, 0, False
        try:
            for record in itertools.count():
                header = stream.read(HEADER_BYTES)
                if not header:
                    break
                size = size_of(header)
                if size is None:
                    raise _damaged(path, record, place, _LENGTH)
                is_tfrecord = True
                frame = header + stream.read(size - HEADER_BYTES)
                if len(frame) < size:
                    raise _damaged(path, record, place, _END)
                data = data_of(frame, 0, size)
                if data is None and not self._skip:
                    raise _damaged(path, record, place, _DATA)
                place += size
                if data is None:
                    skipped += 1
                else:
                    yield data
        except InputError:
            if not (self._skip and is_tfrecord):
                raise
            skipped += 1  # where the next record begins cannot be told
        self._count_skipped(path, skipped)
