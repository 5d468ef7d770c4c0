"""The advice for a pipeline that reads too slowly."""

from __future__ import annotations

import pytest

from stratagem.data import Dataset
from stratagem.data.input_advice import faster


def decode(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("dataset", "processes", "cores", "advice"),
    [
        (
            Dataset.range(4).map(decode),
            0,
            4,
            "map(decode) runs in one thread: "
            "write num_parallel_calls=stratagem.data.AUTOTUNE or options.reader_processes = 2",
        ),
        (
            Dataset.range(4).map(decode, 3).cache(),
            0,
            4,
            "map(decode) runs in 3 threads of one Python: write options.reader_processes = 2",
        ),
        (
            Dataset.range(4).map(decode),
            2,
            8,
            "2 reader processes are too few: write options.reader_processes = 4",
        ),
        (
            Dataset.range(4).map(decode),
            2,
            2,
            "2 reader processes are too few: "
            "cache() the rows, if they fit into memory, or store prepared examples in a file",
        ),
        (
            Dataset.range(4).map(decode),
            0,
            1,
            "map(decode) runs in one thread: this worker has one core; "
            "cache() the rows, if they fit into memory, or store prepared examples in a file",
        ),
        (Dataset.range(4), 0, 4, "the rows lie in memory already: larger batches cost less for each row"),
        (
            Dataset.from_generator(lambda: iter([1])).filter(lambda x: x > 0),
            0,
            4,
            "generated, filter reads in the worker's own Python: cache() the rows, if they fit into memory, or store "
            "prepared examples in a file",
        ),
    ],
)
def test_advice_fits_the_pipeline(dataset: Dataset, processes: int, cores: int, advice: str) -> None:
    assert faster(dataset._node, processes, cores) == advice
