"""Lines of text as columns (`tf.io.decode_csv`)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.files.columns import column
from stratagem.data.structure import eager
from stratagem.data.transforms import in_element_function


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
        record_defaults: For each column the value for lines that have none; its dtype is that of the column. Or only
            a dtype (an empty list, `tf.float32`), if every line must have a value.
        field_delim: The text between columns.
        use_quote_delim: Whether double quotes may enclose a column.
        na_value: Another text that means no value.
        select_cols: The columns to return; None for all.
        name: Accepted as in TensorFlow.

    Returns:
        An array of shape (...) for each column; text as bytes.

    Raises:
        InputError: A line has too few or too many columns, lacks a value that is needed, or has text in place of a
            number.

    Example:
        >>> [each.tolist() for each in decode_csv([b"1,2.5,a", b"4,,b"], [0, 1.0, ""])]
        [[1, 4], [2.5, 1.0], [b'a', b'b']]
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
                "Values would end up in the wrong columns.",
                "Give a default for each column, or name the columns with select_cols.",
            )
    columns = [
        column([row[place] for row in rows], default, na_value).reshape(lines.shape)
        for place, default in zip(wanted, record_defaults, strict=True)
    ]
    return columns if in_element_function() else list(map(eager, columns))
