"""Parquet files, read by row groups."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.data.files.dataset import FileDataset
from stratagem.data.files.source import Take, take_each
from stratagem.data.lru import Recent
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree, flatten, map_leaves, objects

_DECODED: Recent[Tree] = Recent(1 << 28)
"""Decoded row groups that this process keeps, by bytes: a row cannot be decoded without its whole row group."""

_ARROW_ERRORS = (OSError, ValueError, NotImplementedError)
"""Base classes of pyarrow's own errors."""


class ParquetDataset(FileDataset):
    """The rows of Parquet files as dicts from column to value, one file after another.

    Numbers become NumPy scalars, text and binary data become bytes, lists become arrays, structs become dicts, and
    dictionary-encoded values are decoded. Lists of different lengths need `map` or `padded_batch` before they can form
    a batch.

    Rows are found by position, but a row group is decoded whole. A process keeps 256 MB of decoded row groups. A
    shuffle over many more decodes the same groups again and again. To avoid this, read a few files in turn and shuffle
    a window: `Dataset.list_files(pattern).interleave(ParquetDataset, cycle_length=4).shuffle(10000)`; or write smaller
    row groups, `pyarrow.parquet.write_table(table, path, row_group_size=256)` (docs/data.md has figures).

    Args:
        filenames: One or several paths (strings, bytes or `pathlib.Path`). All files must have the same columns.
        columns: Name or names of the columns to read, `"image.bytes"` for a part of a struct; None reads all.

    Raises:
        InputError: No file was given, or pyarrow is not installed. When a file is first needed: it is damaged, has
            other columns than the first file, or a type that cannot become an array. While reading: a value is missing
            (null).

    Example:
        >>> import tempfile, pyarrow, pyarrow.parquet
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = pyarrow.table({"x": [1, 2, 3], "name": ["a", "b", "c"]})
        ...     pyarrow.parquet.write_table(table, f"{folder}/t.parquet")
        ...     list(ParquetDataset(f"{folder}/t.parquet").skip(2).as_numpy_iterator())
        [{'x': np.int64(3), 'name': b'c'}]
    """

    def __init__(self, filenames: Any, columns: str | list[str] | None = None) -> None:
        names = [columns] if isinstance(columns, str) else None if columns is None else list(columns)
        super().__init__(filenames, _ParquetFormat(names))


class _ParquetFormat:
    def __init__(self, columns: list[str] | None) -> None:
        self._columns = columns

    def scan(self, path: str) -> tuple[int, np.ndarray]:
        groups = _parquet_file(path).metadata
        ends = np.cumsum([groups.row_group(k).num_rows for k in range(groups.num_row_groups)], dtype=np.int64)
        return groups.num_rows, ends

    def open(self, path: str, layout: np.ndarray) -> Take:
        return _OpenParquet(path, layout, self._columns).take

    def spec(self, path: str) -> Tree:
        file = _parquet_file(path)
        self._check_columns(path, [file.schema.column(k).path for k in range(len(file.schema))])
        schema = file.read_row_groups([], columns=self._columns).schema
        return {field.name: _spec(field.type, f"{path}, column {field.name!r},") for field in schema}

    def _check_columns(self, path: str, leaves: list[str]) -> None:
        unknown = [
            name for name in self._columns or () if not any(f"{leaf}.".startswith(f"{name}.") for leaf in leaves)
        ]
        if unknown or not (leaves if self._columns is None else self._columns):
            wanted = f"no column {' and no column '.join(unknown)}" if unknown else "no column that is to be read"
            raise InputError(
                f"{path} has {wanted}; its columns are {', '.join(leaves) or 'none'}.",
                "Write columns=[...] with names that the file has.",
            )


class _OpenParquet:
    def __init__(self, path: str, ends: np.ndarray, columns: list[str] | None) -> None:
        self._path = path
        self._ends = ends
        self._columns = columns
        self._file = _parquet_file(path)
        self._lock = threading.Lock()  # one ParquetFile must not be read by two threads at once

    def take(self, index: np.ndarray) -> Tree:
        group = np.searchsorted(self._ends, index, side="right")
        place = index - np.concatenate([[0], self._ends])[group]
        return take_each(group, place, lambda number: partial(_rows, self._group(number)))

    def _group(self, number: int) -> Tree:
        return _DECODED.get(number, lambda: self._decode(number), _bytes_of, owner=self)

    def _decode(self, number: int) -> Tree:
        try:
            with self._lock:
                table = self._file.read_row_group(number, columns=self._columns)
        except _ARROW_ERRORS as error:
            raise _damaged(f"{self._path}, row group {number},", error) from None
        first = int(self._ends[number]) - table.num_rows
        names = [f"{self._path}, column {name!r}," for name in table.column_names]
        return {
            name: _decoded(column.combine_chunks(), where, first)
            for name, column, where in zip(table.column_names, table.columns, names, strict=True)
        }


def _rows(columns: Tree, index: np.ndarray) -> Tree:
    return map_leaves(lambda column: _copied(column.take(index, axis=0)), columns)


def _copied(column: np.ndarray) -> np.ndarray:
    """Return a column that shares no array with the one that it was taken from."""
    if column.dtype == object and len(column) and isinstance(column[0], np.ndarray):
        return objects([row.copy() for row in column])
    return column


def _bytes_of(columns: Tree) -> int:
    return sum(_column_bytes(column) for column in flatten(columns)[0])


def _column_bytes(column: np.ndarray) -> int:
    if column.dtype != object:
        return column.nbytes
    return column.nbytes + sum(len(row) if isinstance(row, bytes) else row.nbytes for row in column.flat)


def _parquet_file(path: str) -> Any:
    parquet = optional.load("pyarrow.parquet", "files", "ParquetDataset")
    try:
        return parquet.ParquetFile(path)
    except _ARROW_ERRORS as error:
        raise _damaged(path, error) from None


def _spec(kind: Any, where: str) -> Tree:
    """Return the spec of a value of an Arrow type."""
    arrow = optional.load("pyarrow", "files", "ParquetDataset")
    types = arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        return _spec(kind.storage_type, where)
    if types.is_dictionary(kind):
        return _spec(kind.value_type, where)
    if types.is_struct(kind):
        return {field.name: _spec(field.type, where) for field in kind}
    if _is_bytes(types, kind):
        return TensorSpec((), object)
    size = kind.list_size if types.is_fixed_size_list(kind) else None
    if size is not None or types.is_list(kind) or types.is_large_list(kind):
        inner = _spec(kind.value_type, where)
        if isinstance(inner, TensorSpec) and None not in (inner.shape or ()):
            return inner.batched(size)
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind):
        return TensorSpec((), arrow.array([], kind).to_numpy(zero_copy_only=False).dtype)
    raise InputError(
        f"{where} has the type {kind}.",
        "Leave it out with columns=[...], or write it as numbers, text, binary data or lists of numbers.",
    )


def _decoded(array: Any, where: str, first: int) -> Tree:
    """Return an Arrow array, whose type has a spec and whose first row is number `first` of the file, as columns."""
    arrow = optional.load("pyarrow", "files", "ParquetDataset")
    types, kind = arrow.types, array.type
    if array.null_count:
        missing = first + array.is_null().to_numpy(zero_copy_only=False).argmax()
        raise InputError(
            f"{where} has no value (null) in row {missing}.",
            "Fill the gaps before writing (pyarrow.compute.fill_null), or leave the column out with columns=[...].",
        )
    if isinstance(kind, arrow.BaseExtensionType):
        return _decoded(array.storage, where, first)
    if types.is_dictionary(kind):
        return _decoded(array.dictionary_decode(), where, first)
    if types.is_struct(kind):
        parts = zip(kind, array.flatten(), strict=True)
        return {field.name: _decoded(part, where, first) for field, part in parts}
    if _is_bytes(types, kind):
        return array.cast(arrow.large_binary()).to_numpy(zero_copy_only=False)
    if types.is_fixed_size_list(kind):
        values = _decoded(array.flatten(), f"{where} inside its lists", first * kind.list_size)
        return values.reshape(len(array), kind.list_size, *values.shape[1:])
    if types.is_list(kind) or types.is_large_list(kind):
        values = _decoded(array.flatten(), f"{where} inside its lists, from row {first} on", 0)
        return objects(np.split(values, np.cumsum(array.value_lengths().to_numpy())[:-1]))
    return array.to_numpy(zero_copy_only=False)


def _is_bytes(types: Any, kind: Any) -> bool:
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def _damaged(where: str, error: Exception) -> InputError:
    return InputError(
        f"{where} cannot be read: {error}.",
        "The file is not a Parquet file, or is damaged. Its rows are lost.",
        "Write the file again, or leave it out of the list.",
    )
