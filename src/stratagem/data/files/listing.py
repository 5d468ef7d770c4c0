"""Lists of files: the elements are names, for steps that read them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from stratagem.core.errors import InputError
from stratagem.data.files.names import paths_of
from stratagem.data.files.source import checked_paths
from stratagem.data.sources import ArraySource, Indexed
from stratagem.data.structure import objects


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
            f"No file matches {' or '.join(map(repr, patterns))}; the present folder is {os.getcwd()}.",
            "Correct the pattern, such as '/data/train-*.tfrecord'; it must match on every worker.",
        )
    return found
