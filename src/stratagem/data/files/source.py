"""Files as a part of a pipeline: records read by position, or in order where a file cannot be read otherwise.

A format says how one file is read; everything about many files stands here. Of a file that can be read by position a
worker reads the rows that it needs and no others, so that any number of workers share the same files. A compressed
file has to be read from its beginning: then every worker reads all of it, or each its own files (`AutoShardPolicy`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.lru import Recent
from stratagem.data.sources import Indexed, InOrder
from stratagem.data.structure import Tree, by_part, map_leaves

Take = Callable[[np.ndarray], Tree]
"""Returns the records at some positions, in the order given, as columns that the caller owns."""

_OPEN: Recent[Take] = Recent(256)
"""Files that the datasets of this process hold open; a system allows a process about a thousand."""


class IndexedFormat(Protocol):
    """A format whose records can be found by position. Small, and can be pickled."""

    def scan(self, path: str) -> tuple[int, Any]:
        """Return the number of records, and whatever `open` needs to find them, such as their offsets.

        Raises:
            InputError: The file is not of this format, or damaged.
        """
        ...

    def open(self, path: str, layout: Any) -> Take:
        """Open a file that was scanned. It closes when it is forgotten: another thread may still read from it."""
        ...

    def spec(self, path: str) -> Tree:
        """Return the tree of `TensorSpec` of a record."""
        ...


@runtime_checkable
class FileStep(Protocol):
    """A step of a pipeline that reads files, or names them: what `AutoShardPolicy.FILE` divides among workers."""

    paths: tuple[str, ...]
    """The files, in the order of their records."""

    def of_files(self, paths: Sequence[str]) -> Any:
        """Return the same step with some of these files, at least one."""
        ...


class FileSource:
    """The records of files, one file after another, read by position.

    A file is scanned when its number of records is first needed, and once. Several threads may read at once.

    Args:
        paths: The files, in the order of their records.
        format: How each is read.

    Raises:
        InputError: There is no file.
    """

    in_memory = False

    def __init__(self, paths: Sequence[str], format: IndexedFormat) -> None:
        self.paths = checked_paths(paths)
        self._format = format

    @cached_property
    def _scanned(self) -> list[tuple[int, Any]]:
        first = self.spec
        for path in self.paths[1:]:
            if (spec := self._format.spec(path)) != first:
                raise InputError(
                    f"{path} holds elements of {spec}, but {self.paths[0]} holds elements of {first}.",
                    "Give files of the same columns, shapes and dtypes, or make a dataset of each kind.",
                )
        return [self._format.scan(path) for path in self.paths]

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of records of each file."""
        return np.array([count for count, _ in self._scanned], np.int64)

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @cached_property
    def spec(self) -> Tree:
        """The tree of `TensorSpec` of a record, as the first file has it."""
        return self._format.spec(self.paths[0])

    def take(self, index: np.ndarray) -> Tree:
        """Return the records at these positions over all files."""
        if len(self.paths) == 1:  # the parts of an `interleave`
            return self._file(0)(index)
        file = np.searchsorted(self._ends, index, side="right")
        return take_each(file, index - (self._ends[file] - self.counts[file]), self._file)

    def _file(self, number: int) -> Take:
        path = self.paths[number]
        return _OPEN.get(path, lambda: self._format.open(path, self._scanned[number][1]), owner=self)

    def of_files(self, paths: Sequence[str]) -> FileSource:
        """Return the source of some of these files; what was scanned of them is not scanned again."""
        other = FileSource(paths, self._format)
        if "_scanned" in vars(self):
            known = dict(zip(self.paths, self._scanned, strict=True))
            vars(other)["_scanned"] = [known[path] for path in other.paths]
        return other


def take_each(part: np.ndarray, place: np.ndarray, take_of: Callable[[int], Take]) -> Tree:
    """Return rows of several parts, in the order given, as columns that the caller owns.

    Args:
        part: For each row, the number of its part.
        place: For each row, its position in that part.
        take_of: Returns how rows are taken from the part of a number.
    """
    numbers, places, order = by_part(part, place)
    taken = [take_of(number)(each) for number, each in zip(numbers, places, strict=True)]
    return taken[0] if len(taken) == 1 else map_leaves(lambda *leaves: np.concatenate(leaves)[order], *taken)


class Files(Indexed):
    """The records of files that can be read by position.

    Args:
        source: The files.
    """

    def __init__(self, source: FileSource) -> None:
        super().__init__(source)
        self._files = source
        self.paths = source.paths

    def of_files(self, paths: Sequence[str]) -> Files:
        return Files(self._files.of_files(paths))


class StreamedFiles(InOrder):
    """The records of files that can be read in order only.

    Args:
        paths: The files, in the order of their records.
        read: Yields the records of a file, each a tree of arrays that the caller owns.
    """

    def __init__(self, paths: Sequence[str], read: Callable[[str], Iterator[Tree]]) -> None:
        super().__init__()
        self.paths = checked_paths(paths)
        self._read = read

    def elements(self) -> Iterator[Tree]:
        return itertools.chain.from_iterable(map(self._read, self.paths))

    def of_files(self, paths: Sequence[str]) -> StreamedFiles:
        return StreamedFiles(paths, self._read)

    def _make_spec(self) -> Tree:
        spec = self.first_spec()
        if spec is None:
            raise InputError(
                f"The {len(self.paths)} files of the dataset hold no record. The first file is {self.paths[0]}.",
                "Give at least one file with a record in it.",
            )
        return spec


def checked_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths, of which there must be one."""
    if not paths:
        raise InputError(
            "A dataset of files was given no file.",
            "Check the pattern or the folder that the list of files comes from.",
        )
    return tuple(paths)
