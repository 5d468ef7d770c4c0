"""ArrayRecord files, and the faults on which the library keeps silent."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import ArrayRecordDataset, write_array_record
from stratagem.data.nodes import walk

RECORDS = [b"%06d" % number * 20 for number in range(1000)] + [b"", b"zero\0"]


@pytest.fixture(params=["group_size:1", "group_size:64", "group_size:1,uncompressed"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_array_record(tmp_path / "a", RECORDS, request.param)
    return tmp_path / "a"


def test_records_by_position(file: Path) -> None:
    dataset = ArrayRecordDataset([file, str(file)])
    assert (len(dataset), dataset.element_spec.dtype) == (2004, object)
    assert list(dataset.as_numpy_iterator()) == RECORDS * 2
    order = [int(i) for i in dataset.range(2004).shuffle(2004, seed=5)]
    assert list(dataset.shuffle(2004, seed=5).as_numpy_iterator()) == [(RECORDS * 2)[i] for i in order]
    assert list(next(iter(dataset.skip(999).batch(4).as_numpy_iterator()))) == RECORDS[999:] + RECORDS[:1]


def test_large_records(tmp_path: Path) -> None:
    large = [bytes([number]) * 100_000 for number in range(9)]
    write_array_record(tmp_path / "a", large, "group_size:1,uncompressed")
    dataset = ArrayRecordDataset(tmp_path / "a")
    order = [int(i) for i in dataset.range(9).shuffle(9, seed=2)]
    assert list(dataset.shuffle(9, seed=2).as_numpy_iterator()) == [large[i] for i in order]


def test_threads_and_other_processes(tmp_path: Path) -> None:
    write_array_record(tmp_path / "a", RECORDS)
    (node,) = walk(ArrayRecordDataset(tmp_path / "a")._node)
    block = pickle.loads(pickle.dumps(node)).stream((0,)).pull(len(RECORDS))
    wrong = []

    def read(seed: int) -> None:
        for index in np.random.default_rng(seed).integers(0, len(RECORDS), (50, 8)):
            found = block.select(index).elements()
            wrong.extend(i for i, record in zip(index, found, strict=True) if record != RECORDS[i])

    threads = [threading.Thread(target=read, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_empty_file_has_no_record(tmp_path: Path) -> None:
    write_array_record(tmp_path / "a", [])
    assert list(ArrayRecordDataset(tmp_path / "a")) == []


def test_a_damaged_record(tmp_path: Path) -> None:
    write_array_record(tmp_path / "a", RECORDS, "group_size:1,uncompressed")
    content = bytearray((tmp_path / "a").read_bytes())
    content[content.index(RECORDS[700]) + 3] ^= 1
    (tmp_path / "a").write_bytes(content)
    dataset = ArrayRecordDataset(tmp_path / "a")
    assert list(dataset.take(700).as_numpy_iterator()) == RECORDS[:700]
    assert list(dataset.skip(701).as_numpy_iterator()) == RECORDS[701:]
    for read in (dataset.batch(1002), dataset.shuffle(1002, seed=1).batch(1002)):
        with pytest.raises(InputError, match=r"a is damaged at record 700, .* at byte \d+"):
            list(read)


@pytest.mark.parametrize("size", [0, 10, 70_000, -1])
def test_a_file_that_is_cut_short(tmp_path: Path, size: int) -> None:
    write_array_record(tmp_path / "a", RECORDS)
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:size])
    with pytest.raises(InputError, match=r"a has no index, or is not an ArrayRecord file: \w+"):
        len(ArrayRecordDataset(tmp_path / "a"))


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    write_array_record(tmp_path / "a", RECORDS[:1000])
    elements = ArrayRecordDataset(tmp_path / "a").as_numpy_iterator()
    assert next(elements) == RECORDS[0]
    os.truncate(tmp_path / "a", 100)
    with pytest.raises(InputError, match=r"ends at byte|damaged at record"):
        list(elements)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(np.random.default_rng(0).bytes(200_000))
    with pytest.raises(InputError, match="garbage has no index, or is not an ArrayRecord file"):
        list(ArrayRecordDataset(tmp_path / "garbage"))
    with pytest.raises(InputError, match="is a folder"):
        list(ArrayRecordDataset(tmp_path))
    with pytest.raises(InputError, match=r"missing cannot be read: No such file"):
        list(ArrayRecordDataset(tmp_path / "missing"))


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="options is 'group_size:0': Option group_size: invalid value"):
        write_array_record(tmp_path / "a", [b"x"], "group_size:0")
    with pytest.raises(InputError, match="type str"):
        write_array_record(tmp_path / "a", ["text"])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        write_array_record(tmp_path / "file" / "a", [b"x"])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
