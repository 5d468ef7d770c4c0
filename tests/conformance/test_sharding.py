"""Every kind of dataset under every policy, on one to four workers: who reads which rows, at which step.

Under AUTO and DATA the shares of a step side by side are the dataset's own batch; where AUTO divides by files, as
sets. Under FILE, OFF and HINT each worker reads a stream of its own, and over the epoch every row comes as often as it
should. All workers see the same number of steps, also where rows do not divide or are fewer than the workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.group import Group

from stratagem.data import (
    ArrayRecordDataset,
    AutoShardPolicy,
    Dataset,
    FixedLengthRecordDataset,
    NumpyDataset,
    Options,
    ParquetDataset,
    TextLineDataset,
    TFRecordDataset,
    write_array_record,
    write_tfrecord,
)
from stratagem.data.experimental import SHARD_HINT
from stratagem.feed.dataset_source import DatasetSource

BATCH = 6
FILES = 4
WORKERS = [pytest.param(1, marks=pytest.mark.thorough), 2, 3, pytest.param(4, marks=pytest.mark.thorough)]
ROWS = {"divides": 4 * BATCH, "does not divide": 3 * BATCH + 5, "fewer than workers": 2}
ENDLESS_STEPS = 13
"""Steps that are read of a dataset without end: every worker reads its part twice."""

Shares = list[list[list[int]]]
"""At each step, the rows of each worker."""


# Kinds ---------------------------------------------------------------------------------------------


def _number(text: bytes) -> np.int64:
    return np.int64(int(text))


def _texts(numbers: range) -> list[bytes]:
    return [str(number).encode() for number in numbers]


def _in_files(folder: Path, rows: int, write: Callable[[str, range], Any]) -> list[str]:
    """Write rows 0, 1, 2 ... to files, as evenly as they divide, and return the paths."""
    paths = [str(folder / f"{number}") for number in range(FILES)]
    for number, path in enumerate(paths):
        write(path, range(rows * number // FILES, rows * (number + 1) // FILES))
    return paths


def _tfrecords(folder: Path, rows: int, compression: str | None = None) -> list[str]:
    return _in_files(folder, rows, lambda path, part: write_tfrecord(path, _texts(part), compression))


def _lines(folder: Path, rows: int) -> list[str]:
    return _in_files(folder, rows, lambda path, part: Path(path).write_bytes(b"".join(t + b"\n" for t in _texts(part))))


def _parquet(folder: Path, rows: int) -> Dataset:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write(path: str, part: range) -> None:
        table = arrow.table({"row": arrow.array(list(part), arrow.int64())})
        parquet.write_table(table, path, row_group_size=2)

    return ParquetDataset(_in_files(folder, rows, write)).map(lambda columns: columns["row"])


def _generated(rows: int) -> Callable[[], Iterator[np.int64]]:
    return lambda: (np.int64(row) for row in range(rows))


def _npy(folder: Path, rows: int) -> list[str]:
    def write(path: str, part: range) -> None:
        with open(path, "wb") as file:
            np.save(file, np.array(part, np.int64))

    return _in_files(folder, rows, write)


IN_MEMORY: dict[str, Callable[[Path, int], Dataset]] = {
    "arrays": lambda _, rows: Dataset.from_tensor_slices(np.arange(rows)),
    "range": lambda _, rows: Dataset.range(rows),
    "generator": lambda _, rows: Dataset.from_generator(_generated(rows)),
    "filtered": lambda _, rows: Dataset.range(2 * rows).filter(lambda row: row % 2 == 0).map(lambda row: row // 2),
    "shuffled": lambda _, rows: Dataset.range(rows).shuffle(5),
    "wholly shuffled": lambda _, rows: Dataset.range(rows).shuffle(rows),
    "objects": lambda _, rows: Dataset.from_source(np.arange(rows).tolist()),
}
OF_FILES: dict[str, Callable[[Path, int], Dataset]] = {
    "TFRecord": lambda folder, rows: TFRecordDataset(_tfrecords(folder, rows)).map(_number),
    "compressed TFRecord": lambda folder, rows: TFRecordDataset(_tfrecords(folder, rows, "GZIP"), "GZIP").map(_number),
    "shuffled TFRecord": lambda folder, rows: TFRecordDataset(_tfrecords(folder, rows)).shuffle(rows).map(_number),
    "TFRecord in turn": lambda folder, rows: (
        Dataset.list_files(_tfrecords(folder, rows), shuffle=False).interleave(TFRecordDataset).map(_number)
    ),
    "TFRecord in random turn": lambda folder, rows: (
        Dataset.list_files(_tfrecords(folder, rows)).interleave(TFRecordDataset, cycle_length=3).map(_number)
    ),
    "ArrayRecord": lambda folder, rows: ArrayRecordDataset(
        _in_files(folder, rows, lambda path, part: write_array_record(path, _texts(part)))
    ).map(_number),
    "lines": lambda folder, rows: TextLineDataset(_lines(folder, rows)).map(_number),
    "Parquet": _parquet,
    "npy": lambda folder, rows: NumpyDataset(_npy(folder, rows)),
    "fixed length": lambda folder, rows: FixedLengthRecordDataset(
        _in_files(folder, rows, lambda path, part: np.array(part, np.int64).tofile(path)), 8
    ).map(lambda record: np.frombuffer(record, np.int64)[0]),
}
KINDS = {**IN_MEMORY, **OF_FILES}


# Reading -------------------------------------------------------------------------------------------


def _with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _read(dataset: Dataset, workers: int, steps: int | None) -> Shares:
    """Read a pass, or so many steps of it, on a group of workers."""

    def read(worker: Any) -> tuple[Any, list[list[int]]]:
        source = DatasetSource(dataset, worker)
        reading = source.open()
        taken = list(itertools.islice(reading, steps))
        reading.close()
        if steps is None:
            assert source.num_batches in (None, len(taken))
        return [step.shares for step in taken], [step.local.tolist() for step in taken]

    told = Group(workers).run(read)
    for shares, _ in told[1:]:
        assert shares == told[0][0], "workers disagree about a step"
    own = [rows for _, rows in told]
    assert [[len(part) for part in step] for step in zip(*own, strict=True)] == [list(s) for s in told[0][0]]
    return [list(step) for step in zip(*own, strict=True)]


def _as_one_batch(shares: Shares) -> list[list[int]]:
    return [sorted(itertools.chain(*step)) for step in shares]


def _of_worker(shares: Shares, worker: int) -> list[int]:
    return [row for step in shares for row in step[worker]]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ROWS)
def test_batches_do_not_depend_on_the_workers(size: str, kind: str, workers: int, tmp_path: Path) -> None:
    rows = ROWS[size]
    dataset = KINDS[kind](tmp_path, rows)
    for policy, repeat in itertools.product((AutoShardPolicy.AUTO, AutoShardPolicy.DATA), (False, True)):
        steps = ENDLESS_STEPS if repeat else None
        batched = _with_policy((dataset.repeat() if repeat else dataset).batch(BATCH), policy)
        shares = _read(batched, workers, steps)
        # As the workers did, in the order that the chief's seeds give.
        alone = batched.with_random_seeds(batched.random_seeds()).batches(iteration=0)
        expected = [batch.data.tolist() for batch in itertools.islice(alone, steps)]
        alone.close()
        assert _as_one_batch(shares) == [sorted(batch) for batch in expected]
        if policy is AutoShardPolicy.DATA:
            assert [list(itertools.chain(*step)) for step in shares] == expected
        if not repeat:
            assert sorted(itertools.chain(*expected)) == list(range(rows))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", OF_FILES)
@pytest.mark.parametrize("size", ROWS)
def test_each_worker_reads_its_files(size: str, kind: str, workers: int, tmp_path: Path) -> None:
    rows = ROWS[size]
    dataset = OF_FILES[kind](tmp_path, rows)
    shares = _read(_with_policy(dataset.batch(BATCH), AutoShardPolicy.FILE), workers, None)
    assert sorted(itertools.chain(*_as_one_batch(shares))) == list(range(rows))
    files = [range(rows * number // FILES, rows * (number + 1) // FILES) for number in range(FILES)]
    for worker in range(workers):
        own = list(itertools.chain(*files[worker::workers]))
        assert sorted(_of_worker(shares, worker)) == own
        endless = _with_policy(dataset.repeat().batch(BATCH), AutoShardPolicy.FILE)
        if size == "divides":
            again = _of_worker(_read(endless, workers, ENDLESS_STEPS), worker)
            assert sorted(again[: len(own)]) == own
            assert sorted(again[len(own) : 2 * len(own)]) == own


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ROWS)
def test_each_worker_reads_everything_or_its_shard(size: str, kind: str, workers: int, tmp_path: Path) -> None:
    rows = ROWS[size]
    dataset = KINDS[kind](tmp_path, rows)
    everything = _read(_with_policy(dataset.batch(BATCH), AutoShardPolicy.OFF), workers, None)
    for worker in range(workers):
        assert sorted(_of_worker(everything, worker)) == list(range(rows))
    hinted = _with_policy(dataset.shard(SHARD_HINT, SHARD_HINT).map(lambda row: row).batch(BATCH), AutoShardPolicy.HINT)
    shards = _read(hinted, workers, None)
    assert sorted(itertools.chain(*_as_one_batch(shards))) == list(range(rows))
