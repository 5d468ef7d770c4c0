"""A dataset of files, however the files are named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from stratagem.data.dataset import Dataset
from stratagem.data.files.names import paths_of
from stratagem.data.files.source import Files, FileSource, IndexedFormat, StreamedFiles, StreamedFormat
from stratagem.data.nodes import Node
from stratagem.data.options import Options


class FileDataset(Dataset):
    """The records of files, one file after another.

    Args:
        filenames: A name, a list of names, or a dataset of names, whose order each pass follows.
        format: How a file is read.

    Raises:
        InputError: There is no name, or something is none.
    """

    def __init__(self, filenames: Any, format: IndexedFormat | StreamedFormat) -> None:
        if isinstance(filenames, Dataset):
            records = filenames.flat_map(partial(_one_file, format))
            super().__init__(records._node, records._options)
        else:
            super().__init__(_step(format, paths_of(filenames)), Options())


def _one_file(format: IndexedFormat | StreamedFormat, name: Any) -> Dataset:
    return Dataset(_step(format, paths_of(name)), Options())


def _step(format: IndexedFormat | StreamedFormat, paths: Sequence[str]) -> Node:
    if isinstance(format, StreamedFormat):
        return StreamedFiles(paths, format)
    return Files(FileSource(paths, format))
