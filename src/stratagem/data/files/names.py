"""Names of files: in every form in which programs write them, by patterns, and as elements of a dataset."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.source import checked_paths
from stratagem.data.sources import ArraySource, Indexed
from stratagem.data.structure import objects


def paths_of(filenames: Any) -> list[str]:
    """Return the paths that `filenames` names.

    Args:
        filenames: A name (str, bytes, `os.PathLike`, an array without axes, a tensor), or a list or array of names.

    Raises:
        InputError: Something is no name.

    Example:
        >>> paths_of("a.tfrecord"), paths_of([b"a.tfrecord", "b.tfrecord"])
        (['a.tfrecord'], ['a.tfrecord', 'b.tfrecord'])
    """
    if isinstance(filenames, str | bytes | os.PathLike):
        return [os.fsdecode(filenames)]
    if hasattr(filenames, "__array__"):
        filenames = np.asarray(filenames).tolist()
        if isinstance(filenames, str | bytes):
            return [os.fsdecode(filenames)]
    if isinstance(filenames, list | tuple):
        return [path for name in filenames for path in paths_of(name)]
    raise InputError(
        f"filenames has {filenames!r}, which is not the name of a file.",
        "Give a name, a list of names, or a dataset of names such as Dataset.list_files makes.",
    )


class FileList(Indexed):
    """The names of files, as bytes.

    Args:
        paths: The files, in the order of the elements.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = checked_paths(paths)
        super().__init__(ArraySource(objects([os.fsencode(path) for path in self.paths])))

    def of_files(self, paths: Sequence[str]) -> FileList:
        return FileList(paths)


def matching_files(file_pattern: Any) -> list[str]:
    """Return the files that match a pattern or one of several, sorted, each once.

    Args:
        file_pattern: A pattern with `*`, `?` and `[...]` as a string, bytes or path, or a list or array of them.

    Raises:
        InputError: No file matches.
    """
    patterns = checked_paths(paths_of(file_pattern))
    found = sorted({path for pattern in patterns for path in glob.glob(pattern, include_hidden=True)})
    if not found:
        raise InputError(
            f"No file matches {' or '.join(map(repr, patterns))}; the current folder is {os.getcwd()}.",
            "Correct the pattern, such as '/data/train-*.tfrecord'; it must match on every worker.",
        )
    return found
