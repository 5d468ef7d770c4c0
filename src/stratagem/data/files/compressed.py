"""Bytes of compressed files, which can only be read in order."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from stratagem.core.errors import InputError
from stratagem.data.files.byte_file import unreadable

_WINDOWS = {"GZIP": zlib.MAX_WBITS + 16, "ZLIB": zlib.MAX_WBITS}
"""`wbits` of zlib for each kind."""

_READ = 1 << 18
_PIECE = 1 << 20
"""Bytes that are decompressed at once: a small file can hold a huge number of zeros."""


def checked_compression(compression_type: str | None) -> str | None:
    """Return the kind of compression, None for none (tf.data also writes that as "").

    Raises:
        InputError: There is no such kind.
    """
    if not compression_type or compression_type in _WINDOWS:
        return compression_type or None
    raise InputError(f"compression_type is {compression_type!r}.", 'Write "GZIP", "ZLIB", or None.')


def decompressed(path: str, compression_type: str) -> Iterator[bytes]:
    """Yield the contents of a compressed file, a megabyte at most at a time.

    Raises:
        InputError: The file is not compressed that way, damaged, or cut short. What stands before is yielded first.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            engine = zlib.decompressobj(_WINDOWS[compression_type])
            while packed := engine.unused_data or file.read(_READ):
                if engine.eof:  # compressed files can be joined to one
                    engine = zlib.decompressobj(_WINDOWS[compression_type])
                while packed:
                    yield engine.decompress(packed, _PIECE)
                    # At the end of a stream CPython leaves in `unconsumed_tail` what it also puts into `unused_data`.
                    packed = b"" if engine.eof else engine.unconsumed_tail
            begun = file.tell() > 0
    except OSError as error:
        raise unreadable(path, error) from None
    except zlib.error as error:
        raise _damaged(path, compression_type, str(error)) from None
    if begun and not engine.eof:
        raise _damaged(path, compression_type, "its end is missing")


def _damaged(path: str, compression_type: str, reason: str) -> InputError:
    return InputError(
        f"{path} cannot be decompressed as {compression_type}: {reason}.",
        "Copy the file again. If it is not compressed, leave compression_type out.",
    )


def compressor(compression_type: str) -> Any:
    """Return an object with `compress(bytes)` for one piece after another, and `flush()` for the end."""
    return zlib.compressobj(wbits=_WINDOWS[compression_type])


class ByteStream:
    """Reads from pieces of bytes as from a file.

    Args:
        pieces: The bytes, in order.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._buffer = b""
        self._next = 0
        self.place = 0

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end. Memory grows with what is there, not with `size`."""
        found = self._buffer[self._next : self._next + size]
        self._next += len(found)
        if len(found) < size:
            parts, have = [found], len(found)
            for piece in self._pieces:
                self._buffer, self._next = piece, min(len(piece), size - have)
                parts.append(piece[: self._next])
                have += self._next
                if have == size:
                    break
            found = b"".join(parts)
        self.place += len(found)
        return found
