"""Files of comma-separated values: their errors, and random order. Their elements are in `tests/unit/tf/data`."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.data import CsvDataset, make_csv_dataset


def test_errors_name_the_row_and_the_column(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("1,2\n3,x\n")
    with pytest.raises(InputError, match=r"Row 2 of .*rows\.csv: column 1 of int32 cannot be read"):
        list(CsvDataset(file, [0, 0]))
    with pytest.raises(InputError, match=r"Row 1 of .*rows\.csv has 2 values; 3 columns"):
        list(CsvDataset(file, [0, 0, 0]))
    file.write_text('1,"2')
    with pytest.raises(InputError, match="is not a file of values"):
        list(CsvDataset(file, [0, 0]))
    with pytest.raises(InputError, match="cannot be read"):
        list(CsvDataset(tmp_path / "none.csv", [0, 0]))


def test_bytes_of_another_encoding_come_out_as_they_went_in(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(gzip.compress(b"\xe9t\xe9,1\n"))
    assert list(CsvDataset(file, ["", 0], compression_type="GZIP").as_numpy_iterator()) == [(b"\xe9t\xe9", 1)]


def test_each_epoch_has_all_rows_in_an_order_of_its_own(tmp_path: Path) -> None:
    for part in range(2):
        (tmp_path / f"{part}.csv").write_text("x,y\n" + "".join(f"{20 * part + n},{n}.5\n" for n in range(20)))
    dataset = make_csv_dataset(
        str(tmp_path / "*.csv"), 5, label_name="y", num_epochs=2, shuffle_seed=3, num_parallel_reads=2
    )
    rows = [x for features, _ in dataset.as_numpy_iterator() for x in features["x"].tolist()]
    assert sorted(rows) == sorted(2 * list(range(40)))
    passes = [[x for features, _ in dataset.as_numpy_iterator() for x in features["x"].tolist()] for _ in range(2)]
    assert passes[0] != passes[1]


def test_rows_that_do_not_fit_are_left_out_where_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("x\n1\nbad\n3\n")
    batches = make_csv_dataset(file, 4, column_defaults=[0], num_epochs=1, shuffle=False, ignore_errors=True)
    assert [batch["x"].tolist() for batch in batches] == [[1, 3]]
