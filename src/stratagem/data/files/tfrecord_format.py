"""How TFRecord files lay out a record: its length, a checksum of that, the data, a checksum of those.

The length has 8 bytes, a checksum 4, all little-endian; a checksum is a masked CRC32C.
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np

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
    while place + _AROUND <= file.size:
        block = file.read(place, min(_BLOCK, file.size - place))
        for found in _headers_in(block):
            size = size_of(block[found : found + HEADER_BYTES])
            start = place + found
            if size is not None and start + size <= file.size and data_of(file.read(start, size), 0, size) is not None:
                return start
        place += len(block) - HEADER_BYTES + 1
    return file.size


def _headers_in(block: bytes) -> list[int]:
    """Return the positions of a block where a length with the right checksum stands."""
    values = np.frombuffer(block, np.uint8)
    count = len(block) - HEADER_BYTES + 1
    # A CRC is linear: that of 8 bytes is the exclusive or of what each of them gives alone.
    crc = np.full(count, _crc32c(bytes(8)), np.uint32)
    stored = np.zeros(count, np.uint32)
    for byte, contributions in enumerate(_contributions()):
        crc ^= contributions[values[byte : byte + count]]
    for byte in range(_CHECKSUM.size):
        stored |= values[8 + byte : 8 + byte + count].astype(np.uint32) << np.uint32(8 * byte)
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK)
    return np.flatnonzero(masked == stored).tolist()


@cache
def _contributions() -> np.ndarray:
    """What each value of each of 8 bytes changes in the checksum of 8 zeros, shape (8, 256)."""
    nothing = _crc32c(bytes(8))
    changed = [[_crc32c(bytes(k) + bytes([value]) + bytes(7 - k)) for value in range(256)] for k in range(8)]
    return np.array(changed, np.uint32) ^ np.uint32(nothing)
