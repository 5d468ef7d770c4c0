"""Memory that two tasks of one machine share, so that arrays are not sent.

The task that asks makes it. It says where it is over their connection, on which each task knows who the other is. The
other task opens it as a file of the owner's process (`/proc/PID/fd/N`). The kernel allows that only to those who could
also read all memory of the owner, including its keys (ptrace(2), "Ptrace access mode checking"). The memory has no name
in any file system: when both tasks have ended, even if they were killed, it is gone.

The reason: copying into pages that were used before runs at the speed of memory. With a socket, the kernel copies
twice, into new pages each time, and with keys all bytes are encrypted and decrypted (benchmarks/pull_push.py).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Any, Final, NamedTuple

import numpy as np

HALF: Final = 256 << 20
"""Bytes for each direction. Arrays that do not fit are sent; pages that nobody has written to take no memory."""

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if sys.platform == "linux" else 0
_PATH: Final = re.compile(r"/proc/[0-9]{1,10}/fd/[0-9]{1,10}")

_ALIGNMENT: Final = 64
"""The alignment that XLA needs to use an array where it lies. It copies others (11 MB: 0.6-2 ms)."""


class MadeFile(NamedTuple):
    """Memory without a place in any file system.

    Args:
        name: A unique name, which nobody can guess.
        path: The path of this memory in this process. `open_file` needs it and the name.
        file: The memory. When it is closed, nobody can open it any more.
    """

    name: str
    path: str
    file: FileIO


def make_file(size: int) -> MadeFile | None:
    """Return new memory, full of zeros; None if the system does not have this kind of memory.

    Args:
        size: Size in bytes. It can never change, so that everyone who opens the memory can safely read it.
    """
    if sys.platform != "linux":
        return None
    name = f"stratagem-{secrets.token_hex(16)}"
    try:
        file = FileIO(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+")
        file.truncate(size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:  # a sandbox forbids it
        return None
    return MadeFile(name, f"/proc/{os.getpid()}/fd/{file.fileno()}", file)


def open_file(name: Any, path: Any, size: int) -> FileIO | None:
    """Return memory that another process has made; None if this process cannot open it, as on another machine.

    Args:
        name: Its name, as the other process says. It may be any text.
        path: Its path, as the other process says. It may be any text.
        size: Size in bytes.
    """
    if sys.platform != "linux" or not (isinstance(path, str) and _PATH.fullmatch(path)):
        return None
    try:
        if not _leads_to(path, name):
            return None
        file = FileIO(path, "r+")
        # If its owner could make it shorter, reading it could kill this process.
        if fcntl.fcntl(file, fcntl.F_GET_SEALS) == _SEALS and os.fstat(file.fileno()).st_size == size:
            return file
        file.close()
    except OSError:
        pass
    return None


class SharedMemory:
    """Two halves: this task writes to one, and the other task writes to the other. `make` and `open` return it.

    There is no lock. The task that made it uses it for one request at a time; the other task uses it from a request to
    its answer.

    Args:
        made: The memory, as its owner has it.
        owner: Whether this task made it.
    """

    def __init__(self, made: MadeFile, *, owner: bool) -> None:
        self.name, self._path, self._file = made
        both = np.frombuffer(mmap.mmap(self._file.fileno(), 2 * HALF), np.uint8)
        halves = both[:HALF], both[HALF:]
        self._out, self._in = halves if owner else halves[::-1]

    @classmethod
    def make(cls) -> SharedMemory | None:
        """Return new memory; None if the system does not have this kind of memory."""
        made = make_file(2 * HALF)
        try:
            return None if made is None else cls(made, owner=True)
        except OSError:  # a limit on addresses is too low
            return None

    @classmethod
    def open(cls, name: Any, path: Any) -> SharedMemory | None:
        """Return memory that another task has made; None if this task cannot open it, as on another machine.

        Args:
            name: Its name, as the other task says. It may be any text.
            path: Its path, as the other task says. It may be any text.
        """
        file = open_file(name, path, 2 * HALF)
        if file is None:
            return None
        try:
            with file:
                return cls(MadeFile(name, path, file), owner=False)
        except OSError:
            return None

    def close(self) -> None:
        """Let nobody open it any more. It lasts until both tasks have dropped it. It is harmless if it is closed."""
        self._file.close()

    @property
    def whereabouts(self) -> dict[str, str]:
        """The name and path that `open` needs."""
        return {"name": self.name, "path": self._path}

    @property
    def has_owner(self) -> bool:
        """Whether the task that made it still holds it."""
        return _leads_to(self._path, self.name)

    def put(self, contents: Iterable[np.ndarray]) -> list[bool]:
        """Copy bytes to the half of this task, and replace its earlier contents.

        Args:
            contents: One array of bytes after the other.

        Returns:
            For each array, whether there was room for it.
        """
        given = list(contents)
        places = list(_places(content.nbytes for content in given))
        for content, place in zip(given, places, strict=True):
            if place is not None:
                self._out[place] = content
        return [place is not None for place in places]

    def take(self, sizes: Iterable[int]) -> list[np.ndarray]:
        """Return copies of the arrays that the other task has put there.

        Args:
            sizes: Bytes of the arrays for which there was room, in order.

        Raises:
            ValueError: There is no room for so many bytes.
        """
        taken = []
        for place in _places(sizes):
            if place is None:
                raise ValueError("the arrays in the shared memory are larger than the memory")
            taken.append(_copied(self._in[place]))
        return taken


def _copied(content: np.ndarray) -> np.ndarray:
    """Return a copy that JAX can use where it lies."""
    room = np.empty(content.nbytes + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    copy = room[begin : begin + content.nbytes]
    copy[:] = content
    return copy


def _places(sizes: Iterable[int]) -> Iterator[slice | None]:
    """Yield where bytes of each size lie in a half, one after the other; None where they find no room."""
    end = 0
    for size in sizes:
        if end + size > HALF:
            yield None
        else:
            yield slice(end, end + size)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT


def _leads_to(path: str, name: str) -> bool:
    """Whether this is that memory: in another container the same path leads to another process, or nowhere."""
    try:
        return os.readlink(path) == f"/memfd:{name} (deleted)"
    except OSError:
        return False
