"""Memory that two tasks of one machine share, so that arrays are not sent.

The task that asks makes it. It says where it is over their connection, on which each task knows who the other is. The
other task opens it as a file of the owner's process (`/proc/PID/fd/N`). The kernel allows that only to those who could
also read all memory of the owner, including its keys (ptrace(2), "Ptrace access mode checking"). The memory has no name
in any file system: when both tasks have ended, even if they were killed, it is gone.

The reason: copying into pages that were used before runs at the speed of memory. With a socket, the kernel copies
twice, into new pages each time, and with keys all bytes are encrypted and decrypted (benchmarks/pull_push.py).

The task that sends arrays copies them to a *room*. The other task uses them where they lie, for as long as it needs
them, and the next message goes to another room. A mark in the memory says which rooms are in use.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import sys
import weakref
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Any, Final, NamedTuple

import numpy as np

ROOM: Final = 256 << 20
"""Bytes for the arrays of a message. Others are sent. Pages that nobody has written to take no memory."""

ROOMS: Final = 3
"""Rooms for each direction. While a program still uses the weights it read before, it reads others, and sends some."""

LONG: Final = 64 << 10
"""Bytes from which arrays are used where they lie. A short one that is kept, as a counter is, would keep a room."""

_MARKS: Final = 4096
"""Bytes of a page at the beginning. One for each room is not zero while the room's reader uses it; the rest is free."""

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


class _Rooms(NamedTuple):
    """The rooms of one direction.

    Args:
        marks: For each, whether its reader uses it.
        contents: The bytes of each.
    """

    marks: np.ndarray
    contents: list[memoryview]

    @classmethod
    def within(cls, whole: memoryview, first: int) -> _Rooms:
        begins = [_MARKS + room * ROOM for room in range(first, first + ROOMS)]
        return cls(np.frombuffer(whole, np.uint8, ROOMS, first), [whole[begin : begin + ROOM] for begin in begins])


class SharedMemory:
    """Rooms in both directions: this task writes to some, and the other task writes to the others.

    `make` and `open` return it. There is no lock. The task that made it uses it for one request at a time; the other
    task uses it from a request to its answer. Who reads a room leaves another one free before the next message, so
    that there is always one to write to.

    Args:
        made: The memory, as its owner has it.
        owner: Whether this task made it.
    """

    def __init__(self, made: MadeFile, *, owner: bool) -> None:
        self.name, self._path, self._file = made
        whole = memoryview(mmap.mmap(self._file.fileno(), size_of_all()))
        both = _Rooms.within(whole, 0), _Rooms.within(whole, ROOMS)
        self._out, self._in = both if owner else both[::-1]

    @classmethod
    def make(cls) -> SharedMemory | None:
        """Return new memory; None if the system does not have this kind of memory."""
        made = make_file(size_of_all())
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
        file = open_file(name, path, size_of_all())
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

    def put(self, contents: Iterable[np.ndarray]) -> tuple[int, list[bool]]:
        """Copy bytes to a room that the other task does not use.

        Args:
            contents: One array of bytes after the other.

        Returns:
            The room, and for each array, whether there was space for it.
        """
        given = list(contents)
        room = int(np.argmin(self._out.marks))
        if self._out.marks[room]:
            return room, [False] * len(given)
        places = list(_places(content.nbytes for content in given))
        whole = np.frombuffer(self._out.contents[room], np.uint8)
        for content, place in zip(given, places, strict=True):
            if place is not None:
                whole[place] = content
        return room, [place is not None for place in places]

    def take(self, room: Any, sizes: Iterable[int]) -> list[np.ndarray]:
        """Return the arrays that the other task has put into a room. They cannot be written to.

        The room is in use until all long ones are dropped. If no other would be left free, they are copied.

        Args:
            room: The room, as the other task says. It may be anything.
            sizes: Bytes of the arrays for which there was space, in order.

        Raises:
            ValueError: There is no such room, or no space for so many bytes.
        """
        if type(room) is not int or not 0 <= room < ROOMS:
            raise ValueError(f"{room!r} is not a room of the shared memory")
        places = []
        for place in _places(sizes):
            if place is None:
                raise ValueError("the arrays in the shared memory are larger than the memory")
            places.append(place)
        whole = np.frombuffer(self._in.contents[room], np.uint8)  # its end is the end of all arrays within
        whole.setflags(write=False)
        marks = self._in.marks
        may_stay = not marks[room] and np.count_nonzero(marks) < ROOMS - 1
        stays = [may_stay and place.stop - place.start >= LONG for place in places]
        if any(stays):
            marks[room] = 1
            weakref.finalize(whole, marks.__setitem__, room, 0).atexit = False
        return [whole[place] if stay else _copied(whole[place]) for place, stay in zip(places, stays, strict=True)]


def size_of_all() -> int:
    """Return the bytes of a memory."""
    return _MARKS + 2 * ROOMS * ROOM


def _copied(content: np.ndarray) -> np.ndarray:
    """Return a copy; JAX can use a long one where it lies."""
    if content.nbytes < LONG:
        return content.copy()
    room = np.empty(content.nbytes + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    copy = room[begin : begin + content.nbytes]
    copy[:] = content
    return copy


def _places(sizes: Iterable[int]) -> Iterator[slice | None]:
    """Yield where bytes of each size lie in a room, one after the other; None where they find no space."""
    end = 0
    for size in sizes:
        if end + size > ROOM:
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
