"""The heap of the C library: what is free of it, in large pieces."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

LARGEST: Final = (1 << 30) - (1 << 20)
"""Bytes of the largest block that glibc takes from the heap, less what it notes beside blocks. Older releases take all
of 32 MiB and more from the system: what is behind the heap cannot be held there."""

_LEAST: Final = 1 << 21
"""Bytes of a huge page. Smaller pieces hold none."""


class Piece(NamedTuple):
    """A piece of the heap.

    Args:
        begin: Its address.
        size: Its bytes.
    """

    begin: int
    size: int


@functools.cache
def c_library() -> ctypes.CDLL:
    """Return the C library: one object for all calls, as each such object is a cycle that only Python collects."""
    library = ctypes.CDLL(None)
    library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def end_of_heap() -> int:
    """Return the address where the heap ends."""
    return c_library().sbrk(0)


@functools.cache
def first_end_of_heap() -> int:
    """Return the address where the heap ended when this, or what is free of it, was asked first."""
    return end_of_heap()


def take(size: int) -> Piece | None:
    """Take a block of memory, which is in the heap if it is not larger than `LARGEST`; None where there is no more."""
    begin = c_library().malloc(size)
    return Piece(begin, size) if begin else None


def free(piece: Piece) -> None:
    """Free a block."""
    c_library().free(piece.begin)


@contextlib.contextmanager
def free_pieces() -> Iterator[list[Piece]]:
    """Hold what is free of the heap in large pieces, so that nobody else takes it or gives it back meanwhile.

    Yields:
        The pieces. What the caller adds is freed as well.
    """
    first_end_of_heap()
    pieces, end, size = [], end_of_heap(), LARGEST
    try:
        while size >= _LEAST:
            piece = take(size)
            if piece and piece.begin + size <= end:
                pieces.append(piece)
                continue
            if piece:  # the heap had none of that size, and has grown
                free(piece)
            size //= 2
        yield pieces
    finally:
        for piece in reversed(pieces):  # the last one first: each joins what is free behind it
            free(piece)
