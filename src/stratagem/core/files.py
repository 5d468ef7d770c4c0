"""Files that are there whole or not at all, and those of a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def draft_of(file: Path) -> Iterator[Path]:
    """Give a path to write to; what is there takes the name of `file` at the end, at once, and lasts a power cut.

    After an exception the draft is gone, and an old file is as it was. The draft of a process that is killed stays,
    under its own name (hidden, with the process number in it).

    Args:
        file: The file. Folders are made.

    Raises:
        OSError: The file cannot be written.

    Example:
        >>> file = getfixture("tmp_path") / "new" / "file"
        >>> with draft_of(file) as draft:
        ...     _ = draft.write_text("whole")
        >>> file.read_text()
        'whole'
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
        _sync(draft)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        _sync(file.parent)  # the name of a file is data of its folder


def files_in(folder: Path, begin: str = "", end: str = "") -> list[Path]:
    """Return what lies in a folder under names that begin and end so; nothing where it cannot be read.

    A pattern of `Path.glob` is compiled, and the last 512 of them are kept: of a checkpoint with a number, 2 KB that
    are never needed again.

    Args:
        folder: The folder.
        begin: What names begin with.
        end: What follows at their end.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> for name in ("ckpt-1", "ckpt-1.tmp", "ckpt-2.tmp"):
        ...     _ = (folder / name).write_text("")
        >>> [file.name for file in files_in(folder, "ckpt-1", ".tmp")]
        ['ckpt-1.tmp']
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    shortest = len(begin) + len(end)
    return [folder / name for name in names if len(name) >= shortest and name.startswith(begin) and name.endswith(end)]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
