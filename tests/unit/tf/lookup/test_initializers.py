"""Contents of tables, from files as TensorFlow 2.21 reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stratagem.tf as tf
from stratagem.errors import InputError

WHOLE_LINE, LINE_NUMBER = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocabulary.txt"
    path.write_text("emerson\r\nlake\r\npalmer\n")
    return path


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    path = tmp_path / "columns.tsv"
    path.write_text("emerson\t10\nlake\t20\npalmer\t30\n")
    return path


def table_of(*arguments: Any, **named: Any) -> Any:
    return tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(*arguments, **named), -1)


def test_a_line_has_its_number(vocabulary: Path) -> None:
    table = table_of(str(vocabulary), tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER)
    assert table.lookup(tf.constant(["lake", "x"])).tolist() == [1, -1]
    later = table_of(vocabulary, tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER, value_index_offset=10)
    assert later.lookup(tf.constant(["lake"])).tolist() == [11]
    assert int(table_of(vocabulary, tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER, vocab_size=2).size()) == 2


def test_columns_are_keys_and_values(columns: Path) -> None:
    table = table_of(columns, tf.string, 0, tf.int64, 1)
    assert table.lookup(tf.constant(["lake", "x"])).tolist() == [20, -1]
    turned = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(columns, tf.int64, 1, tf.string, 0), "?")
    assert turned.lookup(tf.constant([30, 40])).tolist() == [b"palmer", b"?"]


def test_a_file_that_is_not_like_that(columns: Path, vocabulary: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Line 0 of .* has 2 columns, but column 5 was asked for"):
        table_of(columns, tf.string, 0, tf.int64, 5)
    with pytest.raises(InputError, match=r"A line of .* cannot be read as tf.int64: .*'emerson'"):
        table_of(columns, tf.int64, 0, tf.int64, 1)
    with pytest.raises(InputError, match=r"has 3 lines, but vocab_size is 5"):
        table_of(vocabulary, tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER, vocab_size=5)
    with pytest.raises(tf.errors.NotFoundError):
        table_of(tmp_path / "none", tf.string, 0, tf.int64, 1)
    columns.write_text("a\n\nb\n")
    with pytest.raises(InputError, match=r"Line 1 of .* is empty"):
        table_of(columns, tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER)


@pytest.mark.parametrize(
    ("key_index", "value_dtype", "value_index", "found"),
    [
        (-3, tf.int64, LINE_NUMBER, r"key_index is -3"),
        (WHOLE_LINE, tf.string, LINE_NUMBER, r"value_dtype is tf.string, for the numbers of lines"),
        (0, tf.float32, WHOLE_LINE, r"value_dtype is tf.float32, for whole lines"),
    ],
)
def test_what_a_line_cannot_give(columns: Path, key_index: int, value_dtype: Any, value_index: int, found: str) -> None:
    with pytest.raises(InputError, match=found):
        table_of(columns, tf.string, key_index, value_dtype, value_index)


def test_there_are_as_many_values_as_keys() -> None:
    with pytest.raises(InputError, match=r"keys of shape \(2,\) and values of shape \(3,\)"):
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2, 3])
