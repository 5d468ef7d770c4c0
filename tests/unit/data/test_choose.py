"""Elements chosen from several datasets; the order for given choices is that of tensorflow 2.21."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset

r = Dataset.range


def chosen(choices: list[int], stop: bool) -> Dataset:
    choice = Dataset.from_tensor_slices(np.array(choices, np.int64))
    return Dataset.choose_from_datasets([r(2), r(10, 14), r(20, 23)], choice, stop_on_empty_dataset=stop)


@pytest.mark.parametrize(
    ("choices", "stop", "expected"),
    [
        ([0, 1, 2, 0, 1, 2], True, [0, 10, 20, 1, 11, 21]),
        ([0, 0, 0, 1, 0, 1], True, [0, 1]),
        ([0, 0, 0, 1, 0, 1], False, [0, 1, 10, 11]),
        ([1, 1, 1, 1, 1, 1], False, [10, 11, 12, 13]),
        ([2, 2, 2, 1, 0, 2, 1], True, [20, 21, 22, 10, 0]),
        ([], True, []),
    ],
)
def test_choices_are_followed(choices: list[int], stop: bool, expected: list[int]) -> None:
    dataset = chosen(choices, stop)
    assert [int(x) for x in dataset] == expected
    assert dataset.cardinality() == -2
    for count in range(len(expected) + 1):
        assert [int(x) for x in dataset.skip(count)] == expected[count:]
    for size in (1, 2, 3, 10):
        assert [int(x) for batch in dataset.batch(size).as_numpy_iterator() for x in batch] == expected


def test_draws_have_the_weights_and_follow_the_seed() -> None:
    a, b = r(0, 100_000), r(100_000, 200_000)
    mixed = Dataset.sample_from_datasets([a, b, r(3)], [0.75, 0.25, 0], seed=4).take(4000).batch(4000)
    orders = [next(mixed.as_numpy_iterator()).tolist() for _ in range(2)]
    for order in orders:
        assert abs(sum(x < 100_000 for x in order) - 3000) < 150  # 5 standard deviations
        assert [x for x in order if x < 100_000] == list(range(sum(x < 100_000 for x in order)))
    assert orders[0] != orders[1], "each iteration draws anew"
    fixed = Dataset.sample_from_datasets([r(50), r(50, 99)], seed=4, rerandomize_each_iteration=False)
    assert [int(x) for x in fixed] == [int(x) for x in fixed]
    one, other = (Dataset.sample_from_datasets([r(50), r(50, 99)]) for _ in range(2))
    agreed = other.with_random_seeds(one.random_seeds())
    assert [int(x) for x in agreed] == [int(x) for x in one]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: Dataset.sample_from_datasets([r(2), r(10, 14)], seed=1), 6),
        (lambda: Dataset.sample_from_datasets([r(2), r(10, 14).repeat()], seed=1), -1),
        (lambda: Dataset.sample_from_datasets([r(2), r(10, 14)], seed=1, stop_on_empty_dataset=True), -2),
        (lambda: Dataset.sample_from_datasets([r(2).repeat(), r(4).repeat()], stop_on_empty_dataset=True), -1),
        (lambda: Dataset.choose_from_datasets([r(2).repeat(), r(4).repeat()], r(2).repeat(3)), 6),
    ],
)
def test_cardinality(build: Callable[[], Dataset], expected: int) -> None:
    assert build().cardinality() == expected
    if expected >= 0:
        assert len([int(x) for x in build()]) == expected


def test_an_end_is_the_end() -> None:
    stopped = Dataset.sample_from_datasets([r(2), r(10, 14)], [0.5, 0.5], seed=1, stop_on_empty_dataset=True)
    values = [int(x) for x in stopped.repeat(5)]
    assert all(x in (0, 1, 10, 11, 12, 13) for x in values)
    assert sorted(int(x) for x in Dataset.sample_from_datasets([r(2), r(10, 14)], seed=9)) == [0, 1, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dataset.choose_from_datasets([r(2), 3], r(2)), "choose_from_datasets got Dataset, Dataset, int"),
        (lambda: Dataset.sample_from_datasets([]), "sample_from_datasets got no dataset"),
        (lambda: Dataset.sample_from_datasets([r(2)], [0.5, 0.5]), r"weights is \[0.5, 0.5\], for 1 datasets"),
        (lambda: Dataset.sample_from_datasets([r(2)], [0]), r"weights is \[0\]"),
        (lambda: Dataset.sample_from_datasets([r(2), r(2)], [1, -1]), r"weights is \[1, -1\]"),
        (lambda: list(Dataset.choose_from_datasets([r(2)], r(2))), r"choice_dataset has \[1\], .*there are 1 datasets"),
        (lambda: list(Dataset.choose_from_datasets([r(2)], r(1).map(float))), "of dtype float32"),
        (lambda: r(2).apply(lambda dataset: 3), "apply got int"),
    ],
)
def test_what_cannot_be_chosen(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_choices_of_ended_datasets_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratagem.data.choose._MOST_IN_VAIN", 1000)
    dataset = Dataset.choose_from_datasets([r(2), r(2)], r(1).repeat(), stop_on_empty_dataset=False)
    with pytest.raises(InputError, match="choices in a row named datasets that have ended; number 1 has not"):
        list(dataset.batch(50).as_numpy_iterator())


def test_reduce_and_apply() -> None:
    total = Dataset.range(5).enumerate().reduce((0, 0.5), lambda state, pair: (state[0] + pair[0], state[1] + pair[1]))
    assert (int(total[0]), float(total[1])) == (10, 10.5)
    assert int(Dataset.range(0).reduce(np.int64(7), lambda state, x: state + x)) == 7
    assert [int(x) for x in r(9).apply(lambda dataset: dataset.skip(7))] == [7, 8]
    with pytest.raises(InputError, match="reduce_func is 3"):
        r(2).reduce(0, 3)
