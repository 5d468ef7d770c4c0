"""Batches of other sizes from some batch on: the same rows in the same order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from stratagem.data import Dataset
from stratagem.data.resized import Sizes, continued, rows_of_batches, with_batch_sizes

ROWS = 47


def rows(dataset: Dataset) -> list[list[int]]:
    return [np.ravel(batch.data).tolist() for batch in dataset.batches()]


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def shuffled() -> Dataset:
    return Dataset.range(ROWS).shuffle(ROWS, seed=3)


PIPELINES: dict[str, Any] = {
    "batch": lambda: shuffled().batch(6),
    "small buffer": lambda: Dataset.range(ROWS).shuffle(5, seed=3).batch(6),
    "map behind it": lambda: shuffled().batch(6).map(lambda rows: rows + 1),
    "prefetch": lambda: shuffled().batch(6).prefetch(2),
    "padded": lambda: shuffled().padded_batch(6),
    "cache": lambda: shuffled().batch(6).cache(),
    "shuffled batches": lambda: Dataset.range(ROWS).batch(6).shuffle(100, seed=1),
    "repeated": lambda: shuffled().batch(6).repeat(2),
    "repeated rows": lambda: shuffled().repeat(2).batch(6),
    "taken": lambda: shuffled().batch(6).take(5),
    "full batches": lambda: shuffled().batch(6, drop_remainder=True),
    "rebatched": lambda: shuffled().batch(2).rebatch(6),
    "filtered": lambda: shuffled().batch(6).filter(lambda rows: rows[0] % 2 == 0),
}


@pytest.mark.parametrize("sizes", [((0, 4),), ((3, 4),), ((1, 9), (2, 4)), ((2, 1), (5, 50)), ((100, 4),)], ids=str)
@pytest.mark.parametrize("name", PIPELINES)
def test_rows_are_the_same_in_batches_of_other_sizes(name: str, sizes: Sizes) -> None:
    before = rows(PIPELINES[name]())
    dataset = with_batch_sizes(PIPELINES[name](), sizes)
    found = rows(dataset)
    assert flat(found) == flat(before)
    assert found[: sizes[0][0]] == before[: sizes[0][0]]
    ends = [*(first for first, _ in sizes[1:]), len(found)]
    for (first, size), end in zip(sizes, ends, strict=True):
        assert [len(batch) for batch in found[first:end]][:-1] == [size] * (min(end, len(found)) - first - 1)
    assert all(len(batch) <= dict(sizes)[sizes[-1][0]] for batch in found[sizes[-1][0] :])
    assert int(dataset.cardinality()) in (len(found), -2)
    assert rows_of_batches(PIPELINES[name]()) == 6


@pytest.mark.parametrize("name", ["batch", "map behind it", "prefetch", "padded", "repeated rows", "full batches"])
def test_the_number_of_batches_is_known(name: str) -> None:
    for sizes in ((0, 4),), ((3, 4),), ((1, 9), (2, 4)), ((2, 1), (5, 50)), ((7, 1),), ((8, 3),):
        dataset = with_batch_sizes(PIPELINES[name](), sizes)
        assert int(dataset.cardinality()) == len(rows(dataset))


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pass_goes_on_from_every_batch(name: str) -> None:
    sizes = ((1, 9), (3, 4))
    dataset = with_batch_sizes(PIPELINES[name](), sizes)
    expected = rows(dataset)
    for start in range(len(expected) + 1):
        batches = dataset.batches(iteration=0)
        batches.set_state({**batches.get_state(), "batches": start})
        assert [np.ravel(batch.data).tolist() for batch in batches] == expected[start:]


def test_functions_get_the_batches_of_the_new_sizes() -> None:
    dataset = Dataset.range(20).batch(6).map(lambda rows: np.full_like(rows, len(rows)))
    assert rows(with_batch_sizes(dataset, ((1, 4),))) == [[6] * 6, [4] * 4, [4] * 4, [4] * 4, [2] * 2]


def test_padded_rows_are_as_long_as_the_longest_of_their_new_batch() -> None:
    def dataset() -> Dataset:
        return Dataset.range(1, 9).map(lambda n: np.full(n, n)).padded_batch(4, drop_remainder=True)

    shapes = [batch.data.shape for batch in with_batch_sizes(dataset(), ((1, 3),)).batches()]
    assert shapes == [(4, 4), (3, 7), (1, 8)]
    assert with_batch_sizes(dataset(), ((1, 3),)).element_spec.shape == (None, None)


def test_rows_of_several_components() -> None:
    dataset = Dataset.from_tensor_slices({"x": np.arange(10), "y": np.arange(10) * 2}).batch(4, drop_remainder=True)
    found = list(with_batch_sizes(dataset, ((1, 3),)))
    assert [each["y"].tolist() for each in found] == [[0, 2, 4, 6], [8, 10, 12], [14]]
    assert with_batch_sizes(dataset, ((1, 3),)).element_spec["x"].shape == (None,)


def test_an_endless_dataset_stays_endless() -> None:
    dataset = with_batch_sizes(Dataset.range(5).repeat().batch(4), ((2, 3),))
    assert int(dataset.cardinality()) == -1
    assert [batch.tolist() for batch in dataset.take(4)] == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0], [1, 2, 3]]


def test_what_does_not_say_the_rows_of_its_batches() -> None:
    for dataset in (
        Dataset.range(8),
        Dataset.range(8).batch(2).unbatch(),
        Dataset.from_tensor_slices(np.zeros((3, 4))),
        Dataset.range(8).batch(2).rebatch([2, 4]),
        Dataset.range(8).batch(2).concatenate(Dataset.range(8).batch(4)),
    ):
        assert rows_of_batches(dataset) is None


def test_sizes_go_on() -> None:
    assert continued((), 7, 30, given=30) == ()
    assert continued((), 7, 20, given=30) == ((7, 20),)
    assert continued(((7, 20),), 7, 30, given=30) == ()  # nothing was read in between
    assert continued(((7, 20),), 9, 20, given=30) == ((7, 20),)
    assert continued(((7, 20),), 9, 30, given=30) == ((7, 20), (9, 30))
    assert continued(((7, 20), (9, 30)), 8, 10, given=30) == ((7, 20), (8, 10))
