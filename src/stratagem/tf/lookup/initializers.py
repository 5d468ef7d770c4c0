"""Contents of tables: keys and values that a program has, or the lines of a file.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/lookup
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.structure import encoded
from stratagem.tf.dtypes import DType, as_dtype
from stratagem.tf.tensors.operation import is_text


class TextFileIndex:
    """Numbers for the part of a line that is a key or a value (`tf.lookup.TextFileIndex`); others are columns.

    Example:
        >>> TextFileIndex.WHOLE_LINE, TextFileIndex.LINE_NUMBER
        (-2, -1)
    """

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class KeyValueTensorInitializer:
    """Keys and their values (`tf.lookup.KeyValueTensorInitializer`).

    Args:
        keys: The keys, of shape (n,): whole numbers or texts.
        values: The value of each.
        key_dtype: The dtype of the keys; None for the one that they have.
        value_dtype: The dtype of the values; None for the one that they have.
        name: No effect.

    Raises:
        InputError: The numbers of keys and values differ.

    Example:
        >>> KeyValueTensorInitializer(["a", "b"], [1, 2]).value_dtype
        tf.int32
    """

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: str | None = None
    ) -> None:
        self.keys, self.key_dtype = typed(keys, key_dtype)
        self.values, self.value_dtype = typed(values, value_dtype)
        if self.keys.ndim != 1 or self.keys.shape != self.values.shape:
            raise InputError(
                f"A table was given keys of shape {self.keys.shape} and values of shape {self.values.shape}.",
                "Each key has one value: give two lists of the same length.",
            )


class TextFileInitializer:
    """The lines of a file, as keys and values (`tf.lookup.TextFileInitializer`).

    Args:
        filename: The file.
        key_dtype: The dtype of the keys.
        key_index: The part of a line that is the key: the number of a column, or one of `TextFileIndex`.
        value_dtype: The dtype of the values.
        value_index: The part of a line that is the value.
        vocab_size: The number of lines to read; None for all.
        delimiter: The text between columns.
        name: No effect.
        value_index_offset: A number that is added to the numbers of lines.

    Raises:
        InputError: The number of a column or a dtype is wrong, or does not fit the file.
        FileNotFoundError: There is no such file.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        self.key_dtype, self.value_dtype = as_dtype(key_dtype), as_dtype(value_dtype)
        _check_column("key", key_index, self.key_dtype)
        _check_column("value", value_index, self.value_dtype)
        lines = _lines(filename, vocab_size)
        rows = [line.split(delimiter.encode()) for line in lines]
        self.keys = _column(filename, lines, rows, key_index, self.key_dtype)
        self.values = _column(filename, lines, rows, value_index, self.value_dtype)
        if value_index == TextFileIndex.LINE_NUMBER:
            self.values = self.values + value_index_offset


def typed(values: Any, dtype: Any = None) -> tuple[np.ndarray, DType]:
    """Return keys or values as a NumPy array, and their dtype. Python numbers become int32 or float32.

    Args:
        values: A tensor, an array, or a list.
        dtype: The dtype; None for that of the values.
    """
    if is_text(values) or (dtype is not None and as_dtype(dtype) == "string"):
        return np.asarray(encoded(values), object), as_dtype("string")
    array = np.asarray(values)
    if dtype is None:
        of_python = not hasattr(values, "dtype")
        dtype = (
            {"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype) if of_python else array.dtype
        )
    kind = as_dtype(dtype)
    return array.astype(kind.as_numpy_dtype), kind


def _lines(filename: str | os.PathLike[str], count: int | None) -> list[bytes]:
    lines = Path(filename).read_bytes().replace(b"\r", b"").removesuffix(b"\n").split(b"\n")
    lines = [] if lines == [b""] else lines
    if count is not None and count > len(lines):
        raise InputError(f"{filename} has {len(lines)} lines, but vocab_size is {count}.", "Leave vocab_size out.")
    if b"" in lines[:count]:
        raise InputError(
            f"Line {lines.index(b'')} of {filename} is empty.", "Remove the line: an empty line cannot be a key."
        )
    return lines[:count]


def _check_column(what: str, index: int, dtype: DType) -> None:
    if index < TextFileIndex.WHOLE_LINE:
        raise InputError(
            f"{what}_index is {index}.", "Write the number of a column, or one of tf.lookup.TextFileIndex."
        )
    whole = index == TextFileIndex.WHOLE_LINE
    if index == TextFileIndex.LINE_NUMBER and dtype != "int64":
        raise InputError(f"{what}_dtype is {dtype!r}, for the numbers of lines.", f"Write {what}_dtype=tf.int64.")
    if whole and dtype not in ("string", "int64"):
        raise InputError(f"{what}_dtype is {dtype!r}, for whole lines.", "Write tf.string or tf.int64.")


def _column(filename: Any, lines: list[bytes], rows: list[list[bytes]], index: int, dtype: DType) -> np.ndarray:
    if index == TextFileIndex.LINE_NUMBER:
        return np.arange(len(lines), dtype=np.int64)
    short = next((number for number, row in enumerate(rows) if len(row) <= index), None)
    if short is not None:
        raise InputError(
            f"Line {short} of {filename} has {len(rows[short])} columns, but column {index} was asked for.",
            "Correct the number of the column, or delimiter.",
        )
    texts = lines if index == TextFileIndex.WHOLE_LINE else [row[index] for row in rows]
    try:
        return typed(texts if dtype == "string" else [dtype.as_numpy_dtype(text.decode()) for text in texts], dtype)[0]
    except ValueError as error:
        raise InputError(
            f"A line of {filename} cannot be read as {dtype!r}: {error}.", "Correct the file, or the dtype."
        ) from error
