"""Files of elements: what they keep, and what becomes of damaged ones and of passes that end early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset
from stratagem.data.files.saved import FILE


def test_elements_come_back_as_they_were(tmp_path: Path) -> None:
    elements = [
        {"a": (np.float64(n), np.full((2, n), n, np.uint8)), "b": np.full(3, n, ml_dtypes.bfloat16), "c": b"x\0" * n}
        for n in range(1, 5)
    ]
    Dataset.from_generator(lambda: iter(elements)).save(tmp_path)
    loaded = Dataset.load(tmp_path)
    for expected, found in zip(elements, loaded.as_numpy_iterator(), strict=True):
        np.testing.assert_equal(found, expected)
    assert loaded.element_spec["a"][1].shape == (2, None)
    assert loaded.element_spec["b"].dtype == ml_dtypes.bfloat16
    assert len(loaded) == 4


def test_a_worker_reads_its_rows_by_position(tmp_path: Path) -> None:
    Dataset.range(10).map(lambda x: (x, np.full(3, x))).save(tmp_path, compression="GZIP")
    batches = Dataset.load(tmp_path).shuffle(10, seed=1).batch(5).batches(lambda n: slice(2, 4))
    order = [int(x) for x, _ in Dataset.load(tmp_path).shuffle(10, seed=1)]
    assert [batch.data[0].tolist() for batch in batches] == [order[2:4], order[7:9]]


@pytest.mark.parametrize("place", [25, -40, -1])
def test_a_damaged_file_is_told(tmp_path: Path, place: int) -> None:
    Dataset.range(10).save(tmp_path)
    file = tmp_path / FILE
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged: (element 0|its end) has a wrong checksum"):
        list(Dataset.load(tmp_path))
    file.write_bytes(b"something else, and long enough for it")
    with pytest.raises(InputError, match=r"was not written by Dataset\.save"):
        list(Dataset.load(tmp_path))


def test_what_cannot_be_stored_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="window"):
        Dataset.range(4).window(2).save(tmp_path)
    kinds = [np.int32(1), np.float32(1)]
    with pytest.raises(InputError, match=r"Element 1 .* float32; the elements before it have element of int32"):
        Dataset.from_generator(lambda: iter(kinds)).save(tmp_path)
    (tmp_path / "dataset_spec.pb").write_bytes(b"")
    with pytest.raises(InputError, match="TensorFlow wrote it"):
        Dataset.load(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["dataset_spec.pb"], "nothing is left of what failed"


def test_a_pass_that_is_broken_off_leaves_no_file(tmp_path: Path) -> None:
    calls: list[int] = []

    def double(x: Any) -> Any:
        calls.append(int(x))
        return x * 2

    cached = Dataset.range(5).map(double).cache(tmp_path / "cache")
    iterator = iter(cached)
    assert [int(next(iterator)) for _ in range(2)] == [0, 2]
    iterator.close()
    assert list(tmp_path.iterdir()) == []
    assert [int(x) for x in cached] == [0, 2, 4, 6, 8]
    assert [file.name for file in tmp_path.iterdir()] == ["cache"]
    again = Dataset.range(5).map(double).cache(tmp_path / "cache")
    assert [int(x) for x in again] == [0, 2, 4, 6, 8]
    assert calls == [0, 1, 0, 1, 2, 3, 4], "a later program reads the file"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Dataset.range(3).save(tmp_path / "file" / "folder")
    with pytest.raises(InputError, match=r"compression is 'LZ4'"):
        Dataset.range(3).save(tmp_path, compression="LZ4")
