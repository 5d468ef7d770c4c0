"""Files that are there whole or not at all."""

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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
