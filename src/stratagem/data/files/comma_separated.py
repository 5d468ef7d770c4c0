"""Files of values that commas separate: their rows, and batches of their columns."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.data.files.byte_file import checked_compression, decompressed, unreadable
from stratagem.data.files.columns import column
from stratagem.data.files.names import matching_files, paths_of
from stratagem.data.files.source import StreamedFiles
from stratagem.data.options import Options
from stratagem.data.structure import Tree


class _Dialect(NamedTuple):
    """How the text of a file is read: fields as the arguments of `CsvDataset`."""

    compression_type: str | None
    header: bool
    field_delim: str
    use_quote_delim: bool

    def rows(self, path: str, encoding: str = "utf-8") -> Iterator[list[str]]:
        """Yield the fields of each row, the header too."""
        quoting = csv.QUOTE_MINIMAL if self.use_quote_delim else csv.QUOTE_NONE
        with self._opened(path) as file:
            # Bytes that are no text of this encoding come out as they went in.
            text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="")
            try:
                for row in csv.reader(text, delimiter=self.field_delim, quoting=quoting, strict=True):
                    yield row or [""]  # an empty line is a row with one value, which is missing
            except csv.Error as error:
                raise InputError(
                    f"{path} is not a file of values with {self.field_delim!r} between them: {error}.",
                    "Correct field_delim, or the quotes in the file.",
                ) from None

    def _opened(self, path: str) -> Any:
        if self.compression_type:
            return decompressed(path, self.compression_type)
        try:
            return open(path, "rb")
        except OSError as error:
            raise unreadable(path, error) from None


class CsvDataset(Dataset):
    r"""The rows of files of comma-separated values, as tuples (`tf.data.experimental.CsvDataset`).

    The files are read in order, because a quoted value may contain newlines. So every worker reads all of them, or its
    own files (`AutoShardPolicy.FILE`).

    Args:
        filenames: A name, or a list of names; the rows come file after file.
        record_defaults: For each column that is read, the default value, which also sets the dtype of the column; or
            only a dtype, if every row must have a value.
        compression_type: "GZIP", "ZLIB", or None.
        buffer_size: Accepted as in tf.data, without effect.
        header: Whether to skip the first line of each file.
        field_delim: The separator between values.
        use_quote_delim: Whether double quotes enclose values.
        na_value: Another text that means a missing value.
        select_cols: Numbers of the columns to read, increasing; None for all.
        exclude_cols: Numbers of the columns to skip, in place of `select_cols`.

    Raises:
        InputError: An argument is wrong. While reading: a file is missing, or a row does not fit.

    Example:
        >>> file = getfixture("tmp_path") / "rows.csv"
        >>> _ = file.write_text("1,2.5,a\n4,,b\n")
        >>> list(CsvDataset(file, [0, 1.0, ""]).as_numpy_iterator())
        [(np.int32(1), np.float32(2.5), b'a'), (np.int32(4), np.float32(1.0), b'b')]
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        if select_cols is not None and exclude_cols is not None:
            raise InputError("Both select_cols and exclude_cols are given.", "Write one of them.")
        dialect = _Dialect(checked_compression(compression_type), header, field_delim, use_quote_delim)
        read = partial(_read, dialect, _Columns(list(record_defaults), na_value, select_cols, exclude_cols))
        super().__init__(StreamedFiles(paths_of(filenames), read), Options())


class _Columns(NamedTuple):
    """Which columns are read, and how: fields as the arguments of `CsvDataset`."""

    defaults: list[Any]
    na_value: str
    selected: Sequence[int] | None
    excluded: Sequence[int] | None

    def values(self, row: list[str], where: str) -> Tree:
        """Return the element that a row becomes."""
        places: Sequence[int] = range(len(row)) if self.selected is None else self.selected
        if self.excluded is not None:
            places = [place for place in places if place not in self.excluded]
        if len(places) != len(self.defaults) or max(places, default=-1) >= len(row):
            raise InputError(
                f"{where} has {len(row)} values; {len(self.defaults)} columns are described.",
                "Values would end up in the wrong columns.",
                "Give a default for each column, or name the columns with select_cols.",
            )
        described = zip(places, self.defaults, strict=True)
        return tuple(column([row[k]], default, self.na_value, f"{where}: column {k}")[0] for k, default in described)


def _read(dialect: _Dialect, columns: _Columns, path: str) -> Iterator[Tree]:
    rows = itertools.islice(dialect.rows(path), int(dialect.header), None)
    # No generator, which a row that does not fit would end: `ignore_errors` goes on to the next.
    return map(lambda number, row: columns.values(row, f"Row {number} of {path}"), itertools.count(1), rows)


def make_csv_dataset(
    file_pattern: Any,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Make a dataset of batches of columns, as dicts (`tf.data.experimental.make_csv_dataset`).

    Args:
        file_pattern: A pattern, or a list of patterns (see `Dataset.list_files`).
        batch_size: Rows of a batch. Without `num_epochs`, a last batch that is not full is dropped.
        column_names: Names of all columns; None reads them from the header of the first file.
        column_defaults: As `record_defaults` of `CsvDataset`, for the columns that are read. None infers their dtypes.
        label_name: The column that is the label. Elements are then pairs of a dict and the label.
        select_columns: Names or numbers of the columns to read; None for all.
        field_delim: The separator between values.
        use_quote_delim: Whether double quotes enclose values.
        na_value: Another text that means a missing value.
        header: Whether the first line of each file contains names.
        num_epochs: Number of passes over the rows; None repeats for ever.
        shuffle: Whether files and rows come in random order, a new one each time. It is not TensorFlow's order.
        shuffle_buffer_size: See `Dataset.shuffle`.
        shuffle_seed: See `Dataset.shuffle`.
        prefetch_buffer_size: Accepted as in TensorFlow, without effect.
        num_parallel_reads: Number of files that are read in turn; None means one.
        sloppy: Accepted as in TensorFlow; the order never varies.
        num_rows_for_inference: Number of rows that are read to infer dtypes; None means all.
        compression_type: "GZIP", "ZLIB", or None.
        ignore_errors: Whether to skip rows that do not fit.
        encoding: Encoding of the header.

    Raises:
        InputError: No file matches, a name is not among the columns, or an argument is wrong.

    Example:
        >>> file = getfixture("tmp_path") / "rows.csv"
        >>> _ = file.write_text("x,y\n1,0.5\n2,1.5\n")
        >>> batches = make_csv_dataset(file, batch_size=2, label_name="y", num_epochs=1, shuffle=False)
        >>> list(batches.as_numpy_iterator())
        [({'x': array([1, 2], dtype=int32)}, array([0.5, 1.5], dtype=float32))]
    """
    paths = matching_files(file_pattern)
    dialect = _Dialect(checked_compression(compression_type), header, field_delim, use_quote_delim)
    names = list(column_names) if column_names is not None else _names(dialect, paths[0], encoding)
    places = _places(names, select_columns)
    if column_defaults is None:
        rows = itertools.chain.from_iterable(itertools.islice(dialect.rows(path), int(header), None) for path in paths)
        column_defaults = _defaults(itertools.islice(rows, num_rows_for_inference), places, na_value)
    chosen = [names[place] for place in places]
    if label_name is not None and label_name not in chosen:
        raise InputError(f"label_name is {label_name!r}.", f"Write one of the columns: {', '.join(chosen)}.")
    files = Dataset.list_files(paths, shuffle=shuffle, seed=shuffle_seed)

    def rows_of(name: Any) -> Dataset:
        options = (compression_type, None, header, field_delim, use_quote_delim, na_value, places)
        return CsvDataset(name, column_defaults, *options)

    dataset: Dataset = files.interleave(rows_of, cycle_length=num_parallel_reads or 1)
    dataset = dataset.ignore_errors() if ignore_errors else dataset
    dataset = dataset.shuffle(shuffle_buffer_size, shuffle_seed) if shuffle else dataset
    dataset = dataset.repeat(num_epochs).batch(batch_size, drop_remainder=num_epochs is None)
    return dataset.map(partial(_named, chosen, label_name))


def _named(names: Sequence[str], label_name: str | None, *columns: Any) -> Tree:
    features = dict(zip(names, columns, strict=True))
    return features if label_name is None else (features, features.pop(label_name))


def _names(dialect: _Dialect, path: str, encoding: str) -> list[str]:
    if not dialect.header:
        raise InputError("header is False, and column_names is None.", "Write column_names=[...].")
    names = next(dialect.rows(path, encoding), [])
    if len(set(names)) < len(names) or not names:
        raise InputError(f"The first line of {path} names the columns {names}.", "Give each column a name of its own.")
    return names


def _places(names: Sequence[str], selected: Sequence[Any] | None) -> list[int]:
    """Return the numbers of the columns that are selected, increasing, as in TensorFlow."""
    if selected is None:
        return list(range(len(names)))
    unknown = [one for one in selected if one not in names and one not in range(len(names))]
    if unknown:
        raise InputError(f"select_columns has {unknown}.", f"Write some of {', '.join(names)}, or their numbers.")
    return sorted(names.index(one) if isinstance(one, str) else int(one) for one in selected)


_INT_BITS: Final = (np.int32, np.int64)


def _defaults(rows: Iterator[list[str]], places: Sequence[int], na_value: str) -> list[Any]:
    """Return a default for each column, of the first of TensorFlow's dtypes that holds all values of some rows."""
    columns = zip(*([row[place] for place in places if place < len(row)] for row in rows), strict=False)
    kinds = [_kind([field for field in fields if field not in ("", na_value)]) for fields in columns]
    if len(kinds) < len(places):
        raise InputError(
            f"The files have {len(kinds)} columns in the rows that were read; {len(places)} are to be read.",
            "Correct column_names and field_delim, or write column_defaults.",
        )
    return ["" if kind is None else np.zeros(1, kind) for kind in kinds]


def _kind(fields: Sequence[str]) -> Any:
    """Return the dtype of these values, None for text."""
    if not fields:
        return None
    for kind in _INT_BITS:
        if all(_is_int(field, np.iinfo(kind)) for field in fields):
            return kind
    for kind in (np.float32, np.float64):
        if all(_is_float(field, float(np.finfo(kind).max)) for field in fields):
            return kind
    return None


def _is_int(field: str, limits: Any) -> bool:
    try:
        return limits.min <= int(field) <= limits.max
    except ValueError:
        return False


def _is_float(field: str, most: float) -> bool:
    try:
        value = float(field)
    except ValueError:
        return False
    return math.isfinite(value) and abs(value) <= most
