"""Columns of text files: the values of lines as arrays, with a default for each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from stratagem.core.errors import InputError


def column(fields: list[str], default: Any, na_value: str, name: str = "A column") -> np.ndarray:
    """Return the values of one column.

    Args:
        fields: What the lines have there.
        default: The value where a line has none, whose dtype is the column's; or a dtype alone (an empty list,
            `tf.float32`), where every line must have one.
        na_value: What else stands for no value.
        name: What an error calls the column.

    Raises:
        InputError: A line has no value where one is needed, or no number.
    """
    dtype, fallback = _kind(default)
    values = [fallback if field in ("", na_value) else field for field in fields]
    if None in values:
        raise InputError(
            f"{name} needs a value in every line, but one line has none.",
            "Give a default in record_defaults, such as 0.0.",
        )
    if dtype.kind == "O":
        texts = [value.encode(errors="surrogateescape") if isinstance(value, str) else value for value in values]
        return np.array(texts, object)
    try:
        return np.array(values, dtype)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{name} of {dtype} cannot be read: {error}.",
            "Correct record_defaults: their dtypes are those of the columns.",
        ) from None


def _kind(default: Any) -> tuple[np.dtype, Any]:
    """Return a column's dtype, and the value where a line has none (None where it must have one)."""
    if isinstance(default, type | np.dtype) or hasattr(default, "as_numpy_dtype"):
        return np.dtype(getattr(default, "as_numpy_dtype", default)), None
    values = np.asarray(default)
    if values.dtype.kind in "SUO":
        return np.dtype(object), values.reshape(-1)[0] if values.size else None
    narrow = {"float64": np.float32, "int64": np.int32}  # what TensorFlow makes of Python's numbers
    dtype = np.dtype(
        narrow.get(str(values.dtype), values.dtype) if isinstance(default, int | float | list) else values.dtype
    )
    return dtype, values.reshape(-1)[0] if values.size else None
