"""ArrayRecord files, which Grain reads too: made to be read by position.

The library keeps silent on some faults: a file that is missing, cut short or of another kind has no record for it, and
a file that was cut short while it is open has empty ones. So those are looked for here.
https://github.com/google/array_record
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.data.files.byte_file import BYTES, ByteFile
from stratagem.data.files.dataset import FileDataset
from stratagem.data.files.source import Take
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import objects

_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""Without reading ahead in threads of its own: the library's default waits on locks when records are read by position
(https://github.com/google/grain/issues/808)."""

_LARGE = 1 << 16
"""Bytes of a record from which on records are read one by one."""


class ArrayRecordDataset(FileDataset):
    """The records of ArrayRecord files as bytes, read by position.

    Args:
        filenames: A name, a list of names, or a dataset of names; the records come file after file.

    Raises:
        InputError: An argument is not a name. While reading: a file is missing, damaged, or not an ArrayRecord file.

    Example:
        >>> from stratagem.data.files.writers import write_array_record
        >>> file = getfixture("tmp_path") / "digits.arrayrecord"
        >>> write_array_record(file, [b"three", b"four"])
        >>> list(ArrayRecordDataset(file).as_numpy_iterator())
        [b'three', b'four']
    """

    def __init__(self, filenames: Any) -> None:
        super().__init__(filenames, _ArrayRecords())


class _ArrayRecords:
    def scan(self, path: str) -> tuple[int, None]:
        return len(_OpenRecords(path)), None

    def open(self, path: str, layout: None) -> Take:
        return _OpenRecords(path).take

    def spec(self, path: str) -> TensorSpec:
        return BYTES


class _OpenRecords:
    def __init__(self, path: str) -> None:
        self._file = ByteFile(path)
        library = optional.load("array_record.python.array_record_module", "files", "An ArrayRecord file")
        self._reader = library.ArrayRecordReader(path, _OPTIONS)
        if not self._reader.ok():
            raise _damaged(path, "has no index", self._fault(0))

    def __len__(self) -> int:
        return self._reader.num_records()

    def take(self, index: np.ndarray) -> np.ndarray:
        numbers = index.tolist()
        try:
            records = self._read(numbers)
        except RuntimeError as error:
            number = next((number for number in numbers if self._fault(number)), None)
            raise _damaged(self._file.path, f"is damaged at record {number}", error) from None
        if not all(records):
            self._file.read(self._file.size - 1, 1)  # an error if the file was cut short
        return objects(records)

    def _read(self, numbers: list[int]) -> list[bytes]:
        # The fastest of the library's calls, one core, CPU time. Neighbours: a range of one record after another,
        # 330,000/s of 1 KB (160,000/s as one range). Others: a list, 57,000/s of 1 KB (1,500/s one by one), but
        # where they are large one by one, 12,000/s of 100 KB (6,800/s), as each is copied while it is in the cache.
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return [self._reader.read(number, number + 1)[0] for number in numbers]
        if self._file.size > _LARGE * len(self):
            return [self._reader.read([number])[0] for number in numbers]
        return self._reader.read(numbers)

    def _fault(self, number: int) -> str:
        """Return why a record cannot be read, nothing if it can."""
        try:
            self._reader.read([number])
        except RuntimeError as error:
            return str(error)
        return ""


def _damaged(path: str, found: str, reason: object) -> InputError:
    return InputError(
        f"{path} {found}, or is not an ArrayRecord file: {reason}.",
        "Copy the file again, or make it again with stratagem.data.write_array_record.",
    )
