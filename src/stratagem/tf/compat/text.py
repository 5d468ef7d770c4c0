"""Text as bytes and back, and kinds of Python's values (`tf.compat.as_bytes`, ...)."""

from __future__ import annotations

import numbers
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np


def as_bytes(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """Return text as bytes.

    Example:
        >>> as_bytes("text")
        b'text'
    """
    return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes(bytes_or_text)


def as_text(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    """Return bytes as text.

    Example:
        >>> as_text(b"text")
        'text'
    """
    return bytes_or_text if isinstance(bytes_or_text, str) else bytes_or_text.decode(encoding)


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Return a value as text.

    Example:
        >>> as_str_any(b"text"), as_str_any(3)
        ('text', '3')
    """
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: Any) -> str:
    """Return a path as text."""
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else path


def dimension_value(dimension: Any) -> int | None:
    """Return a dimension unchanged: dimensions are numbers here.

    Example:
        >>> dimension_value(3)
        3
    """
    return dimension


def dimension_at_index(shape: Sequence[int | None], index: int) -> int | None:
    """Return the size of one axis."""
    return shape[index]


bytes_or_text_types: Final = (bytes, str)
integral_types: Final = (numbers.Integral, np.integer)
real_types: Final = (numbers.Real, np.integer, np.floating)
complex_types: Final = (numbers.Complex, np.number)
