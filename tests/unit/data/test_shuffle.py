"""The order of shuffled datasets: tf.data's rule step by step, the window, uniformity, seeds."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from stratagem.data import Dataset
from stratagem.data.nodes import Stream
from stratagem.data.shuffle import exchange


def order(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(("size", "steps"), [(1, 5), (2, 1), (3, 50), (50, 3), (17, 200)])
def test_exchange_is_the_rule_step_by_step(size: int, steps: int) -> None:
    slots = np.random.default_rng(size).integers(0, size, steps)
    buffer, left = list(range(size)), []
    for step, slot in enumerate(slots):
        left.append(buffer[slot])
        buffer[slot] = size + step
    leaving, staying = exchange(slots, size)
    assert leaving.tolist() == left
    assert staying.tolist() == buffer


@pytest.mark.parametrize("buffer_size", [1, 2, 7, 100, 999, 1000, 1001, 10**12])
def test_exactly_once_and_within_the_window(buffer_size: int) -> None:
    result = order(Dataset.range(1000).shuffle(buffer_size, seed=3))
    assert sorted(result) == list(range(1000))
    assert all(place >= element - buffer_size + 1 for place, element in enumerate(result))
    if buffer_size == 1:
        assert result == list(range(1000))
    else:
        assert sum(place != element for place, element in enumerate(result)) > 400


def test_a_window_uses_all_of_its_freedom() -> None:
    earliest = [10**9] * 4
    for seed in range(50):
        for place, element in enumerate(order(Dataset.range(4).shuffle(2, seed=seed))):
            earliest[element] = min(earliest[element], place)
    assert earliest == [0, 0, 1, 2]


def chi_square(counts: Counter[tuple[int, ...]], cells: int) -> float:
    expected = counts.total() / cells
    return sum((count - expected) ** 2 / expected for count in counts.values()) + (cells - len(counts)) * expected


@pytest.mark.parametrize("buffer_size", [4, 5])
def test_a_full_buffer_gives_every_permutation_equally_often(buffer_size: int) -> None:
    dataset = Dataset.range(4).shuffle(buffer_size, seed=11).batch(4)
    counts = Counter(tuple(next(dataset.batches(iteration=i)).data.tolist()) for i in range(4800))
    assert chi_square(counts, 24) < 49.7, "23 degrees of freedom, one in a thousand"


def test_a_small_buffer_gives_the_orders_of_the_rule_equally_often() -> None:
    dataset = Dataset.range(3).shuffle(2, seed=11).batch(3)
    counts = Counter(tuple(next(dataset.batches(iteration=i)).data.tolist()) for i in range(4000))
    assert set(counts) == {(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)}
    assert chi_square(counts, 4) < 16.3, "3 degrees of freedom, one in a thousand"


def test_repetitions_are_shuffled_each_by_itself() -> None:
    result = order(Dataset.range(20).shuffle(20, seed=1).repeat(3))
    thirds = [result[start : start + 20] for start in (0, 20, 40)]
    assert [sorted(third) for third in thirds] == [list(range(20))] * 3
    assert len({tuple(third) for third in thirds}) == 3


def test_repeat_before_shuffle_mixes_repetitions() -> None:
    result = order(Dataset.range(20).repeat(3).shuffle(60, seed=1))
    assert Counter(result) == Counter(dict.fromkeys(range(20), 3))
    assert sorted(result[:20]) != list(range(20))


def test_one_order_for_ever() -> None:
    dataset = Dataset.range(20).shuffle(20, seed=1, reshuffle_each_iteration=False)
    assert order(dataset.repeat(2)) == 2 * order(dataset) == 2 * order(dataset)


def test_equal_seeds_keep_zipped_datasets_aligned() -> None:
    pairs = Dataset.zip(Dataset.range(30).shuffle(8, seed=5), Dataset.range(100, 130).shuffle(8, seed=5))
    assert {int(b) - int(a) for a, b in pairs} == {100}


def test_seeds_of_any_size() -> None:
    seeds: list[Any] = [0, 1, -1, 2**63, np.int64(7)]
    orders = {tuple(order(Dataset.range(9).shuffle(9, seed=seed))) for seed in seeds}
    assert len(orders) == 5


def test_keras_and_python_seeding_reach_unseeded_shuffles() -> None:
    import random

    random.seed(4)
    first = Dataset.range(9).shuffle(9).random_seeds()
    random.seed(4)
    assert Dataset.range(9).shuffle(9).random_seeds() == first


def test_order_does_not_depend_on_how_many_elements_are_asked_for() -> None:
    def pulled(sizes: list[int]) -> list[int]:
        stream: Stream = Dataset.range(500).shuffle(60, seed=2)._node.stream((0,))
        out: list[int] = []
        for size in itertools.cycle(sizes):
            block = stream.pull(size)
            if block is None:
                return out
            out += block.gather().tolist()
        raise AssertionError

    assert pulled([1]) == pulled([500]) == pulled([3, 100, 7]) == pulled([64])


@pytest.mark.parametrize(
    ("buffer_size", "expected"),
    [(10, [2, 0, 6, 5, 4, 3, 1, 7, 8, 9]), (4, [0, 1, 4, 5, 7, 8, 6, 9, 2, 3])],
)
def test_the_order_that_stored_states_rely_on(buffer_size: int, expected: list[int]) -> None:
    assert order(Dataset.range(10).shuffle(buffer_size, seed=42)) == expected
