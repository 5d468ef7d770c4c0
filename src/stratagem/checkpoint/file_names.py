"""Names of a checkpoint's files: the one that programs see without its ending, and those of workers beside it.

The name of a worker's file holds the name of the attempt to save, so that the files of two attempts never mix, and
none is written over.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from stratagem.core.files import files_in
from stratagem.core.log import logger

SUFFIX: Final = ".safetensors"
"""Ending of a checkpoint's file, which the path that programs see does not have."""

SHARD: Final = r"(?:\.shard-\d+-of-\d+-([0-9a-f]+))"
"""Pattern of what stands before the ending in the name of a worker's file; the group is the attempt."""

_SHARD_NAME: Final = re.compile(rf"(?:\.(?=.*\.tmp$))?(.+){SHARD}{re.escape(SUFFIX)}(?:\.\d+\.tmp)?")
"""Name of a worker's file, or of its draft: that of the checkpoint, and that of the attempt."""


def file_of(path: str | os.PathLike[str]) -> Path:
    """Return the file of the checkpoint that programs call `path`.

    Example:
        >>> file_of("folder/ckpt-3").name
        'ckpt-3.safetensors'
    """
    return Path(f"{path_of(path)}{SUFFIX}")


def path_of(path: str | os.PathLike[str]) -> str:
    """Return what programs call a checkpoint, given that or its file."""
    return os.fspath(path).removesuffix(SUFFIX)


def draft_name(path: str | os.PathLike[str]) -> Path:
    """Return a hidden file of this process's own beside a checkpoint, which the next save under its name deletes."""
    file = file_of(path)
    return file.with_name(f".{file.name}.{os.getpid()}.tmp")


def shard_file(path: str | os.PathLike[str], attempt: str, number: int, count: int) -> Path:
    """Return the file of a worker.

    Args:
        path: What programs call the checkpoint.
        attempt: The name of the attempt to write it, hexadecimal.
        number: The worker's number, from 0.
        count: How many there are.

    Example:
        >>> shard_file("folder/ckpt-3", "5f3a9c", 0, 2).name
        'ckpt-3.shard-00001-of-00002-5f3a9c.safetensors'
    """
    return Path(f"{path_of(path)}.shard-{number + 1:05}-of-{count:05}-{attempt}{SUFFIX}")


def owner_of_shard(name: str) -> str | None:
    """Return the name of the checkpoint that a worker's file is part of; None for any other file."""
    found = _SHARD_NAME.fullmatch(name)
    return found[1] if found else None


def remove_shards(path: str | os.PathLike[str], *, keep: str | None = None, only: str | None = None) -> None:
    """Delete the files of workers of a checkpoint, and what is left of attempts that were cut short.

    Args:
        path: What programs call it.
        keep: An attempt whose files stay.
        only: The attempt whose files go; None for all.
    """
    name = os.path.basename(path_of(path))
    for file in files_in(file_of(path).parent):
        attempt = _attempt_of(file.name)
        if owner_of_shard(file.name) == name and attempt != keep and only in (None, attempt):
            _unlink(file)


def remove_stray_shards(prefix: str) -> None:
    """Delete the files of workers of numbered checkpoints whose own file is not there: of processes that were killed.

    Args:
        prefix: Folder and name of the checkpoints, up to the number. Nobody else saves under it.
    """
    folder, name = os.path.split(prefix)
    numbered = re.compile(rf"{re.escape(name)}\d+")
    for file in files_in(Path(folder)):
        owner = owner_of_shard(file.name)
        if owner is not None and numbered.fullmatch(owner) and not file_of(file.with_name(owner)).exists():
            _unlink(file)


def _attempt_of(name: str) -> str | None:
    found = _SHARD_NAME.fullmatch(name)
    return found[2] if found else None


def _unlink(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s, a part of an old checkpoint, could not be deleted: %s", file, error)
