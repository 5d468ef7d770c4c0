"""`tf.io.gfile`: files and folders of this machine, and of others by `protocol://` through fsspec.

Errors are Python's own: `FileNotFoundError`, `FileExistsError`, `OSError`.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/io/gfile
"""

from __future__ import annotations

import glob as local_glob
import os
import posixpath
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path as LocalPath
from types import TracebackType
from typing import Any, NamedTuple, Self

from stratagem.core import optional
from stratagem.data.files.names import paths_of
from stratagem.tf.namespace import explaining

Path = str | bytes | os.PathLike[str]


class FileStatistics(NamedTuple):
    """The result of `stat`: size in bytes, time of change in nanoseconds since 1970, and whether it is a folder."""

    length: int
    mtime_nsec: int
    is_directory: bool


class GFile:
    """An open file (`tf.io.gfile.GFile`): a context manager with the methods of Python's files, and `size`.

    Args:
        name: The file.
        mode: As in `open`: "r", "w", "a", "r+", each also with "b".

    Raises:
        FileNotFoundError: There is no such file.

    Example:
        >>> name = getfixture("tmp_path") / "words"
        >>> with GFile(name, "w") as file:
        ...     _ = file.write("one two")
        >>> GFile(name).size(), GFile(name, "rb").read()
        (7, b'one two')
    """

    def __init__(self, name: Path, mode: str = "r") -> None:
        self.name = _text(name)
        self.mode = mode
        place = _remote(name)
        options = {} if "b" in mode else {"encoding": "utf-8"}
        opener: Callable[..., Any] = open if place is None else place.open
        self._file = opener(self.name, mode, **options)

        weakref.finalize(self, self._file.close)  # as TensorFlow's: forgotten is closed

    def size(self) -> int:
        """Return the number of bytes, including those just written."""
        if self._file.writable():
            self._file.flush()
        return stat(self.name).length

    def read(self, n: int = -1) -> Any:
        """Return the next `n` characters or bytes, -1 for all."""
        return self._file.read(n)

    def readline(self) -> Any:
        """Return the next line."""
        return self._file.readline()

    def readlines(self) -> list[Any]:
        """Return the lines that are left."""
        return self._file.readlines()

    def write(self, file_content: Any) -> int:
        """Write text or bytes, depending on the mode, and return how many."""
        return self._file.write(file_content)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position, counted from the start, or as `whence` says."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Return whether `seek` works."""
        return self._file.seekable()

    def flush(self) -> None:
        """Pass the written data to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self._file  # not iter(): this object, which closes the file, must live as long

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def exists(path: Path) -> bool:
    """Return whether a file or folder exists.

    Example:
        >>> exists("/dev/null"), exists("/no/such/file")
        (True, False)
    """
    place = _remote(path)
    return os.path.exists(_text(path)) if place is None else bool(place.exists(_text(path)))


def isdir(path: Path) -> bool:
    """Return whether a path is a folder.

    Example:
        >>> isdir("/"), isdir("/dev/null")
        (True, False)
    """
    place = _remote(path)
    return os.path.isdir(_text(path)) if place is None else bool(place.isdir(_text(path)))


def glob(pattern: Path | Iterable[Path]) -> list[str]:
    """Return the files that match a pattern with `*`, `?`, `[...]`, or one of several; sorted.

    Example:
        >>> glob("/dev/nul*")
        ['/dev/null']
    """
    return sorted({path for one in paths_of(pattern) for path in _matching(one)})


def listdir(path: Path) -> list[str]:
    """Return the names in a folder, without the path of the folder.

    Raises:
        FileNotFoundError: There is no such folder.

    Example:
        >>> "null" in listdir("/dev")
        True
    """
    place = _remote(path)
    if place is None:
        return os.listdir(_text(path))
    return [posixpath.basename(name.rstrip("/")) for name in place.ls(_text(path), detail=False)]


def makedirs(path: Path) -> None:
    """Make a folder and its parents. A folder that exists is not an error.

    Example:
        >>> makedirs(getfixture("tmp_path") / "a" / "b")
    """
    place = _remote(path)
    os.makedirs(_text(path), exist_ok=True) if place is None else place.makedirs(_text(path), exist_ok=True)


def mkdir(path: Path) -> None:
    """Make a folder in an existing folder.

    Raises:
        FileExistsError: The folder exists already.
        FileNotFoundError: The folder around it does not exist.

    Example:
        >>> mkdir(getfixture("tmp_path") / "a")
    """
    place = _remote(path)
    os.mkdir(_text(path)) if place is None else place.mkdir(_text(path), create_parents=False)


def remove(path: Path) -> None:
    """Remove a file or an empty folder.

    Raises:
        FileNotFoundError: There is no such file or folder.

    Example:
        >>> makedirs(getfixture("tmp_path") / "a")
        >>> remove(getfixture("tmp_path") / "a")
    """
    place = _remote(path)
    if place is not None:
        place.rm(_text(path))
    elif os.path.isdir(_text(path)):
        os.rmdir(_text(path))
    else:
        os.remove(_text(path))


def rmtree(path: Path) -> None:
    """Remove a folder and all that is in it.

    Raises:
        FileNotFoundError: There is no such folder.

    Example:
        >>> makedirs(getfixture("tmp_path") / "a" / "b")
        >>> rmtree(getfixture("tmp_path") / "a")
    """
    place = _remote(path)
    shutil.rmtree(_text(path)) if place is None else place.rm(_text(path), recursive=True)


def rename(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Give a file or folder another name.

    Raises:
        FileExistsError: `dst` exists, and `overwrite` is false.
    """
    _refuse_overwriting(dst, overwrite)
    place = _remote(src)
    os.replace(_text(src), _text(dst)) if place is None else place.mv(_text(src), _text(dst))


def copy(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Copy a file.

    Raises:
        FileExistsError: `dst` exists, and `overwrite` is false.
    """
    _refuse_overwriting(dst, overwrite)
    with GFile(src, "rb") as source, GFile(dst, "wb") as target:
        shutil.copyfileobj(source, target)


def stat(path: Path) -> FileStatistics:
    """Return the size of a file and the time of its last change.

    Raises:
        FileNotFoundError: There is no such file.

    Example:
        >>> stat("/dev/null").length
        0
    """
    place = _remote(path)
    if place is None:
        found = os.stat(_text(path))
        return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(_text(path)))
    entry = place.info(_text(path))
    changed: Any = entry.get("mtime") or entry.get("created") or 0
    seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed)
    return FileStatistics(entry.get("size") or 0, int(seconds * 1e9), entry.get("type") == "directory")


def walk(
    top: Path, topdown: bool = True, onerror: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below one, with the names of the folders and the files in it.

    Example:
        >>> makedirs(getfixture("tmp_path") / "a" / "b")
        >>> [folders for _, folders, _ in walk(getfixture("tmp_path"))]
        [['a'], ['b'], []]
    """
    place = _remote(top)
    if place is None:
        yield from os.walk(_text(top), topdown=topdown, onerror=onerror)
    else:
        yield from place.walk(_text(top), topdown=topdown)


def join(path: Path, *paths: Path) -> str:
    """Return the parts as one path.

    Example:
        >>> join("gs://bucket", "folder", "file"), join("/tmp", "file")
        ('gs://bucket/folder/file', '/tmp/file')
    """
    return posixpath.join(_text(path), *map(_text, paths))


def get_registered_schemes() -> list[str]:
    """Return the protocols that work without further packages: files of this machine.

    Example:
        >>> get_registered_schemes()
        ['', 'file']
    """
    return ["", "file"]


def _text(path: Any) -> str:
    (text,) = paths_of(path)
    return text.removeprefix("file://")


def _remote(path: Any) -> Any:
    """Return the file system of a path with a protocol, None for this machine's."""
    protocol, found, _ = _text(path).partition("://")
    if not found:
        return None
    fsspec = optional.load("fsspec", "remote", f"A file with {protocol}:// in its name")
    return fsspec.filesystem(protocol)


def _matching(pattern: str) -> list[str]:
    place = _remote(pattern)
    if place is None:
        return local_glob.glob(_text(pattern), recursive=True)
    protocol = pattern.partition("://")[0]
    return [name if "://" in name else f"{protocol}://{name.lstrip('/')}" for name in place.glob(pattern)]


def _refuse_overwriting(dst: Path, overwrite: bool) -> None:
    if not overwrite and exists(dst):
        raise FileExistsError(f"{LocalPath(_text(dst))} already exists; write overwrite=True to replace it.")


__getattr__ = explaining(__name__)
