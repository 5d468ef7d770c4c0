"""NumPy's own files: `.npy` mapped into memory, `.npz` as far as it is not compressed."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.dataset import FileDataset
from stratagem.data.files.source import Take
from stratagem.data.lru import Recent
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree, common_length, flatten, map_leaves

_DECOMPRESSED: Recent[np.ndarray] = Recent(1 << 28)
"""Decompressed arrays that this process keeps, by bytes: a compressed array cannot be read by rows."""


class NumpyDataset(FileDataset):
    """The rows of arrays in `.npy` and `.npz` files, along their first axis, one file after another.

    Files are mapped into memory, and a worker reads only the rows that it needs. So files may be larger than memory. An
    array that `numpy.savez_compressed` wrote is decompressed whole; a process keeps 256 MB of such arrays.

    Args:
        filenames: One or several paths (strings, bytes or `pathlib.Path`). An element is a row of an `.npy` file, or a
            dict with a row of each array of an `.npz` file. All files must contain the same kind of rows.

    Raises:
        InputError: No file was given. When a file is first needed: it is damaged, contains Python objects (which are
            code), or the arrays of an `.npz` file differ in their first dimension.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/x.npy", np.arange(6).reshape(3, 2))
        ...     [row.tolist() for row in NumpyDataset(f"{folder}/x.npy").as_numpy_iterator()]
        [[0, 1], [2, 3], [4, 5]]
    """

    def __init__(self, filenames: Any) -> None:
        super().__init__(filenames, _NumpyFormat())


@dataclass(frozen=True)
class _Array:
    """Position and kind of an array in a file. `offset` is None if it is compressed."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool
    offset: int | None


_Layout = _Array | dict[str, _Array]
"""The array of an `.npy` file, or the arrays of an `.npz` file by their names."""


class _NumpyFormat:
    def scan(self, path: str) -> tuple[int, _Layout]:
        layout = _layout(path)
        found = f"The arrays in {path} differ in their first dimension, or have none"
        return common_length(layout, found, "Save arrays whose first dimension counts the same examples."), layout

    def open(self, path: str, layout: _Layout) -> Take:
        arrays = map_leaves(lambda array: _placed(path, array), layout)
        return lambda index: map_leaves(lambda array: array.take(index, axis=0), arrays)

    def spec(self, path: str) -> Tree:
        return map_leaves(lambda array: TensorSpec(array.shape[1:], array.dtype), _layout(path))


class _Compressed:
    """An array that is decompressed when rows of it are needed."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name

    def take(self, index: np.ndarray, axis: int) -> np.ndarray:
        array = _DECOMPRESSED.get(None, self._read, lambda array: array.nbytes, owner=self)
        return array.take(index, axis)

    def _read(self) -> np.ndarray:
        try:
            with zipfile.ZipFile(self._path) as archive:
                return np.lib.format.read_array(io.BytesIO(archive.read(f"{self._name}.npy")), allow_pickle=False)
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise _damaged(f"{self._path}, array {self._name!r},", error) from None


class _Mapped:
    """An array that is mapped into memory."""

    def __init__(self, path: str, array: _Array, offset: int) -> None:
        self._file = ByteFile(path)
        self._last = offset + math.prod(array.shape) * array.dtype.itemsize - 1
        self._check()
        order = "F" if array.fortran_order else "C"
        # As a plain array, whose `take` costs a third.
        self._rows = np.asarray(np.memmap(path, array.dtype, "r", offset, array.shape, order))

    def take(self, index: np.ndarray, axis: int) -> np.ndarray:
        self._check()
        return self._rows.take(index, axis)

    def _check(self) -> None:
        # SIGBUS would end the process at rows of a file that was cut short. It still does where that happens within
        # the microseconds of one `take`.
        self._file.read(self._last, 1)


def _placed(path: str, array: _Array) -> np.ndarray | _Mapped | _Compressed:
    if array.offset is None:
        return _Compressed(path, array.name)
    # An empty part of a file cannot be mapped.
    return _Mapped(path, array, array.offset) if math.prod(array.shape) else np.empty(array.shape, array.dtype)


def _layout(path: str) -> _Layout:
    try:
        layout = _read_layout(path)
    except (OSError, ValueError, EOFError, struct.error, zipfile.BadZipFile, zlib.error) as error:
        raise _damaged(path, error) from None
    for array in flatten(layout)[0]:
        if array.dtype.hasobject:
            raise InputError(
                f"The array {array.name} in {path} holds Python objects.",
                "Reading it would run code that is stored in the file.",
                "Save numbers: numpy.asarray(rows, 'float32'), padded to one shape.",
            )
    return layout


def _read_layout(path: str) -> _Layout:
    with open(path, "rb") as file:
        is_archive = file.read(4) == b"PK\3\4"
        file.seek(0)
        if not is_archive:
            return _header(Path(path).stem, file, Path(path).stat().st_size)
        with zipfile.ZipFile(file) as archive:
            return {array.name: array for array in _members(file, archive)}


def _members(file: Any, archive: zipfile.ZipFile) -> Iterator[_Array]:
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if member.compress_type == zipfile.ZIP_STORED:
            # The local header repeats the name, and may have another extra field than the directory at the end.
            file.seek(member.header_offset + 26)
            lengths = struct.unpack("<HH", file.read(4))
            start = member.header_offset + 30 + sum(lengths)
            file.seek(start)
            yield _header(name, file, start + member.file_size)
        else:
            with archive.open(member) as content:
                yield _header(name, content, None)


def _header(name: str, file: Any, end: int | None) -> _Array:
    """Read where an array lies that begins here and ends before `end`; None where it is compressed."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(file)
    if end is None or dtype.hasobject:
        return _Array(name, shape, dtype, fortran_order, None)
    offset, needed = file.tell(), math.prod(shape) * dtype.itemsize
    if end - offset < needed:
        found = f"there are {end - offset} bytes from byte {offset} on"
        raise ValueError(f"{found}, array {name} of shape {shape} and dtype {dtype} needs {needed}")
    return _Array(name, shape, dtype, fortran_order, offset)


def _damaged(where: str, error: Exception) -> InputError:
    return InputError(
        f"{where} cannot be read: {error}.",
        "The file is not a .npy or .npz file, or is damaged. Its rows cannot be found.",
        "Write the file again with numpy.save or numpy.savez, or leave it out of the list.",
    )
