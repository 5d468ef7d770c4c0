"""What `cache` keeps, and from when on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stratagem.data import Dataset


def order(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset.as_numpy_iterator()]


def recorded(dataset: Dataset) -> tuple[list[int], Dataset]:
    calls: list[int] = []

    def double(x: Any) -> Any:
        calls.append(int(x))
        return x * 2

    return calls, dataset.map(double)


def test_map_runs_once_for_each_row() -> None:
    calls, dataset = recorded(Dataset.range(50))
    shuffled = dataset.cache().shuffle(20, seed=1).repeat(3).batch(8)
    assert sorted(x for batch in shuffled for x in batch.tolist()) == sorted(3 * [2 * x for x in range(50)])
    assert sorted(calls) == list(range(50))
    assert sum(len(batch) for batch in shuffled) == 150
    assert len(calls) == 50, "another pass over the same dataset object reads the cache as well"


def test_a_worker_keeps_only_rows_that_it_needed() -> None:
    calls, dataset = recorded(Dataset.range(50))
    batches = dataset.cache().batch(10).repeat(2)
    assert [b.data.tolist() for b in batches.batches(lambda n: slice(0, 1))] == 2 * [[0], [20], [40], [60], [80]]
    assert calls == [0, 10, 20, 30, 40]


def test_batches_are_kept_by_rows() -> None:
    calls, dataset = recorded(Dataset.range(6))
    batches = dataset.batch(3).cache().repeat(2)
    assert [b.data.tolist() for b in batches.batches(lambda n: slice(1, 2))] == [[2], [8], [2], [8]]
    assert calls == [1, 4]


def test_a_pass_broken_off_leaves_nothing() -> None:
    calls, dataset = recorded(Dataset.range(4))
    cached = dataset.cache()
    assert order(cached.take(2)) == [0, 2]
    assert order(cached) == [0, 2, 4, 6]
    assert order(cached) == [0, 2, 4, 6]
    assert calls == [0, 1, 0, 1, 2, 3]


def test_a_generator_runs_once() -> None:
    passes: list[int] = []

    def numbers() -> Iterator[int]:
        passes.append(1)
        yield from range(4)

    cached = Dataset.from_generator(numbers).cache()
    assert order(cached.repeat(3)) == 3 * [0, 1, 2, 3]
    assert len(passes) == 1


def test_a_shuffle_before_it_is_frozen_in_the_order_of_iteration_0() -> None:
    cached = Dataset.range(20).shuffle(20, seed=1).cache().batch(20)
    first = next(cached.batches(iteration=3)).data.tolist()
    assert first == order(Dataset.range(20).shuffle(20, seed=1))
    assert next(cached.batches()).data.tolist() == first


def test_a_function_that_works_in_place_does_not_reach_the_cache() -> None:
    def spoil(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    def rows() -> Iterator[np.ndarray]:
        yield from np.zeros((3, 2))

    for source in (Dataset.from_generator(rows), Dataset.range(3).map(lambda i: np.zeros(2))):
        spoilt = source.cache().map(spoil).repeat(3)
        assert [x.tolist() for x in spoilt.as_numpy_iterator()] == 9 * [[1.0, 1.0]]


def test_elements_of_unequal_shapes() -> None:
    cached = Dataset.range(3).map(lambda n: np.arange(n)).cache()
    assert [x.tolist() for x in cached.repeat(2).as_numpy_iterator()] == 2 * [[], [0], [0, 1]]


def test_rows_of_several_kinds() -> None:
    both = Dataset.range(4).concatenate(Dataset.range(4).map(lambda x: x + 10)).cache()
    assert order(both.repeat(2)) == 2 * [0, 1, 2, 3, 10, 11, 12, 13]
    assert sorted(order(both.shuffle(8, seed=1))) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_new_seeds_start_an_empty_cache() -> None:
    cached = Dataset.range(20).shuffle(20, seed=1).cache()
    before = order(cached)
    assert order(cached.with_random_seeds([2])) != before
    assert order(cached) == before
