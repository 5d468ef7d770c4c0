"""Lines of text as columns (`tf.io.decode_csv`)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[np.ndarray]:
    """Return the columns of lines (`tf.io.decode_csv`).

    Args:
        records: A line as bytes or text, or an array of lines, of shape (...).
        record_defaults: For each column the value where a line has none, whose dtype is the column's; or a dtype
            alone (an empty list, `tf.float32`), where every line must have a value.
        field_delim: What stands between columns.
        use_quote_delim: Whether a double quote keeps a column together.
        na_value: What else stands for no value.
        select_cols: The columns to return; None for all.
        name: Accepted as in TensorFlow.

    Returns:
        An array of shape (...) for each column; text as bytes.

    Raises:
        InputError: A line has too few or too many columns, no value where one is needed, or no number.

    Example:
        >>> decode_csv([b"1,2.5,a", b"4,,b"], [0, 1.0, ""])
        [array([1, 4], dtype=int32), array([2.5, 1. ], dtype=float32), array([b'a', b'b'], dtype=object)]
    """
    lines = np.asarray(records, object)
    texts = [line.decode() if isinstance(line, bytes) else str(line) for line in lines.reshape(-1)]
    quoting = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    rows = list(csv.reader(texts, delimiter=field_delim, quoting=quoting))
    wanted = list(range(len(record_defaults))) if select_cols is None else list(select_cols)
    for text, row in zip(texts, rows, strict=True):
        if len(row) <= max(wanted, default=0) or (select_cols is None and len(row) != len(record_defaults)):
            raise InputError(
                f"The line {text!r} has {len(row)} columns; {len(record_defaults)} are described.",
                "Values would stand in the wrong columns.",
                "Give a default for each column, or name the columns with select_cols.",
            )
    return [
        _column([row[place] for row in rows], default, na_value).reshape(lines.shape)
        for place, default in zip(wanted, record_defaults, strict=True)
    ]


def _column(fields: list[str], default: Any, na_value: str) -> np.ndarray:
    dtype, fallback = _kind(default)
    values = [fallback if field in ("", na_value) else field for field in fields]
    if None in values:
        raise InputError(
            "A column that needs a value in every line has none.", "Give a default in record_defaults, such as 0.0."
        )
    if dtype.kind == "O":
        return np.array([value.encode() if isinstance(value, str) else value for value in values], object)
    try:
        return np.array(values, dtype)
    except ValueError as error:
        raise InputError(
            f"A column of {dtype} cannot be read: {error}.",
            "Correct record_defaults: their dtypes are those of the columns.",
        ) from None


def _kind(default: Any) -> tuple[np.dtype, Any]:
    """Return a column's dtype, and the value where a line has none (None where it must have one)."""
    if isinstance(default, type) or hasattr(default, "as_numpy_dtype"):
        return np.dtype(getattr(default, "as_numpy_dtype", default)), None
    values = np.asarray(default)
    if values.dtype.kind in "SUO":
        return np.dtype(object), values.reshape(-1)[0] if values.size else None
    narrow = {"float64": np.float32, "int64": np.int32}  # what TensorFlow makes of Python's numbers
    dtype = np.dtype(
        narrow.get(str(values.dtype), values.dtype) if isinstance(default, int | float | list) else values.dtype
    )
    return dtype, values.reshape(-1)[0] if values.size else None
