"""Rows of Parquet files, compared with what was written."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset, ParquetDataset, TensorSpec
from stratagem.data.lru import Recent


def write(path: Path, rows_in_group: int | None = None, **columns: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=rows_in_group)
    return path


def test_every_kind_of_column(tmp_path: Path) -> None:
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.arange(12, dtype=np.float32)), 3)
    images = pyarrow.array([{"bytes": bytes([k, 0]), "side": k} for k in range(4)])
    path = write(
        tmp_path / "t.parquet",
        rows_in_group=3,
        whole=pyarrow.array([1, 2, 3, 4], pyarrow.int16()),
        real=pyarrow.array([0.5, float("nan"), 2.5, 3.5]),
        yes=[True, False, True, True],
        text=["a", "é", "", "d"],
        data=[b"\0", b"b\0", b"c", b"d"],
        kind=pyarrow.array(["x", "y", "x", "x"]).dictionary_encode(),
        day=pyarrow.array(np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"], "datetime64[ms]")),
        vector=vectors,
        tokens=pyarrow.array([[1], [], [2, 3], [4]], pyarrow.list_(pyarrow.int32())),
        image=images,
    )
    dataset = ParquetDataset(path)
    rows = list(dataset.as_numpy_iterator())
    assert [row["whole"] for row in rows] == [1, 2, 3, 4]
    assert type(rows[0]["whole"]) is np.int16
    assert [str(row["real"]) for row in rows] == ["0.5", "nan", "2.5", "3.5"], "NaN is a number, not a missing value"
    assert [bool(row["yes"]) for row in rows] == [True, False, True, True]
    assert [row["text"] for row in rows] == [b"a", "é".encode(), b"", b"d"]
    assert [row["data"] for row in rows] == [b"\0", b"b\0", b"c", b"d"]
    assert [row["kind"] for row in rows] == [b"x", b"y", b"x", b"x"]
    assert [str(row["day"])[:10] for row in rows] == ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]
    assert [row["vector"].tolist() for row in rows] == np.arange(12.0).reshape(4, 3).tolist()
    assert [row["tokens"].tolist() for row in rows] == [[1], [], [2, 3], [4]]
    assert [(row["image"]["bytes"], int(row["image"]["side"])) for row in rows] == [
        (bytes([k, 0]), k) for k in range(4)
    ]
    assert {name: dataset.element_spec[name] for name in ("whole", "text", "vector", "tokens")} == {
        "whole": TensorSpec((), np.int16),
        "text": TensorSpec((), object),
        "vector": TensorSpec((3,), np.float32),
        "tokens": TensorSpec((None,), np.int32),
    }
    assert dataset.element_spec["image"]["bytes"] == TensorSpec((), object)


def test_rows_of_many_files_in_any_order(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{k}.parquet", 4, x=np.arange(10) + 10 * k, y=["t"] * 10) for k in range(3)]
    dataset = ParquetDataset(paths, columns=["x"])
    assert len(dataset) == 30
    assert [int(row["x"]) for row in dataset] == list(range(30))
    (batch,) = dataset.shuffle(30, seed=1).batch(30).as_numpy_iterator()
    assert sorted(batch["x"].tolist()) == list(range(30))
    assert batch["x"].flags.writeable
    again = pickle.loads(pickle.dumps(dataset)).skip(27)
    assert [int(row["x"]) for row in again] == [27, 28, 29]
    names = Dataset.list_files(str(tmp_path / "*.parquet"), shuffle=False)
    mixed = names.interleave(lambda name: ParquetDataset(name, columns=["x"]), cycle_length=3)
    assert [int(row["x"]) for row in mixed.take(4)] == [0, 10, 20, 1]


def test_row_groups_are_decoded_once_as_long_as_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    read = pyarrow.parquet.ParquetFile.read_row_group
    monkeypatch.setattr(
        pyarrow.parquet.ParquetFile, "read_row_group", lambda self, k, **kw: decoded.append(k) or read(self, k, **kw)
    )
    path = write(tmp_path / "t.parquet", 100, x=np.arange(400))  # 800 bytes in a row group
    list(ParquetDataset(path).repeat(2).batch(10).as_numpy_iterator())
    assert decoded == [0, 1, 2, 3]
    monkeypatch.setattr("stratagem.data.files.parquet._DECODED", Recent(1700))
    decoded.clear()
    list(ParquetDataset(path).repeat(2).batch(10).as_numpy_iterator())
    assert decoded == [0, 1, 2, 3] * 2


def test_several_threads_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratagem.data.files.parquet._DECODED", Recent(100))
    dataset = ParquetDataset(write(tmp_path / "t.parquet", 10, x=np.arange(200)))
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append([int(row["x"]) for row in dataset.as_numpy_iterator()]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(200))] * 4


def test_lists_of_different_lengths_are_padded_or_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", tokens=[[1], [2, 3], [4, 5], [6, 7]])
    dataset = ParquetDataset(path)
    with pytest.raises(InputError, match=r"Component \['tokens'\] has elements of shapes \(1,\) and \(2,\)"):
        list(dataset.batch(4).as_numpy_iterator())
    padded = dataset.map(lambda row: np.pad(row["tokens"], (0, 3 - len(row["tokens"])))).batch(4)
    assert next(padded.as_numpy_iterator()).tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 0], [6, 7, 0]]
    (batch,) = dataset.skip(1).batch(3).as_numpy_iterator()
    assert batch["tokens"].tolist() == [[2, 3], [4, 5], [6, 7]]
    for row in dataset.as_numpy_iterator():
        row["tokens"] *= 0
    assert next(dataset.as_numpy_iterator())["tokens"].tolist() == [1], "what is kept is not the caller's"


def test_missing_values_are_an_error_with_the_row(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", 2, x=[1, 2, 3, None], image=[{"bytes": b"a", "path": None}] * 4)
    with pytest.raises(InputError, match=r"t\.parquet, column 'x', has no value \(null\) in row 3\..*\n.*fill_null"):
        list(ParquetDataset(path, columns=["x"]).as_numpy_iterator())
    part = ParquetDataset(path, columns=["image.bytes"])
    assert [row["image"]["bytes"] for row in part.as_numpy_iterator()] == [b"a"] * 4
    with pytest.raises(InputError, match=r"t\.parquet has no column img; its columns are x, image\.bytes, image\.path"):
        len(ParquetDataset(path, columns=["img", "x"]))
    with pytest.raises(
        InputError, match=r"t\.parquet has no column that is to be read; its columns are x, image\.bytes"
    ):
        len(ParquetDataset(path, columns=[]))
    assert int(next(ParquetDataset(path, columns="x").as_numpy_iterator())["x"]) == 1


def test_types_that_are_no_arrays_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", x=pyarrow.array([[[1], [2, 3]]]))
    with pytest.raises(InputError, match=r"t\.parquet, column 'x', has the type list<.*\n.*columns="):
        len(ParquetDataset(path))
    other = write(tmp_path / "other.parquet", y=[1])
    first = write(tmp_path / "first.parquet", x=[1])
    with pytest.raises(
        InputError, match=r"other\.parquet holds elements of .*'y'.*first\.parquet holds elements of .*'x'"
    ):
        len(ParquetDataset([first, other]))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", 100, x=np.random.default_rng(0).random(1000))
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-100])
    with pytest.raises(InputError, match=r"t\.parquet cannot be read: .*[Pp]arquet"):
        len(ParquetDataset(path))
    content[900:1700] = bytes(800)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"t\.parquet, row group \d, cannot be read"):
        list(ParquetDataset(path).as_numpy_iterator())
    with pytest.raises(InputError, match=r"nothing\.parquet cannot be read"):
        len(ParquetDataset(tmp_path / "nothing.parquet"))
