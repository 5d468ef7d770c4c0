"""Layout of a record in a TFRecord file: its length, a checksum of the length, the data, a checksum of the data.

The length has 8 bytes, a checksum 4, all little-endian; a checksum is a masked CRC32C.
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stratagem.core import optional
from stratagem.data.files.byte_file import ByteFile

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")

HEADER_BYTES = _HEADER.size
"""Bytes before the data."""

_AROUND = _HEADER.size + _CHECKSUM.size
_MASK = 0xA282EAD8
_BLOCK = 1 << 18


@cache
def _library() -> Any:
    return optional.load("google_crc32c", "files", "A TFRecord file")


def _crc32c(data: bytes) -> int:
    return _library().value(data)


def _checksum(data: bytes) -> int:
    crc = _crc32c(data)
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
