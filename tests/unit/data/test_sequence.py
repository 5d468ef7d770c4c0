"""Steps that choose elements: their passes, skips and positions agree with Python's lists. Choice among datasets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset
from stratagem.data.nodes import elements_of

LIMIT = 12


def r(*args: int) -> Dataset:
    return Dataset.range(*args)


def odd(dataset: Dataset) -> Dataset:
    """Return the odd numbers of a dataset, whose number is not known then."""
    return dataset.filter(lambda x: x % 2 == 1)


CASES: list[tuple[str, Callable[[], Dataset], list[int], int, bool]] = [
    ("take", lambda: r(9).take(3), [0, 1, 2], 3, True),
    ("take more", lambda: r(2).take(3), [0, 1], 2, True),
    ("take all", lambda: r(3).take(-1), [0, 1, 2], 3, True),
    ("take of unknown", lambda: odd(r(9)).take(2), [1, 3], UNKNOWN_CARDINALITY, False),
    ("take for ever", lambda: r(2).repeat().take(5), [0, 1, 0, 1, 0], 5, True),
    ("skip", lambda: r(5).skip(3), [3, 4], 2, True),
    ("skip all", lambda: r(5).skip(-1), [], 0, True),
    ("skip of unknown", lambda: odd(r(9)).skip(1), [3, 5, 7], UNKNOWN_CARDINALITY, False),
    ("shard", lambda: r(8).shard(3, 1), [1, 4, 7], 3, True),
    ("shard of unknown", lambda: odd(r(12)).shard(2, 1), [3, 7, 11], UNKNOWN_CARDINALITY, False),
    ("repeat", lambda: r(2).repeat(3), [0, 1, 0, 1, 0, 1], 6, True),
    ("repeat for ever", lambda: r(5).repeat(), [*range(5), *range(5), 0, 1], INFINITE_CARDINALITY, True),
    ("repeat of unknown", lambda: odd(r(4)).repeat(2), [1, 3, 1, 3], UNKNOWN_CARDINALITY, False),
    ("repeat of nothing", lambda: r(0).repeat(), [], 0, False),
    ("repeat of nothing known", lambda: odd(r(1)).repeat(), [], INFINITE_CARDINALITY, False),
    ("concatenate", lambda: r(2).concatenate(r(7, 9)), [0, 1, 7, 8], 4, True),
    ("concatenate of unknown", lambda: r(2).concatenate(odd(r(4))), [0, 1, 1, 3], UNKNOWN_CARDINALITY, False),
    ("zip", lambda: Dataset.zip(r(3), r(5, 9)).map(lambda a, b: 10 * a + b), [5, 16, 27], 3, True),
    (
        "zip of unknown",
        lambda: Dataset.zip(r(9), odd(r(4))).map(lambda a, b: a + b),
        [1, 4],
        UNKNOWN_CARDINALITY,
        False,
    ),
]


@pytest.mark.parametrize(
    ("build", "expected", "cardinality", "by_position"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_elements_skips_and_positions(
    build: Callable[[], Dataset], expected: list[int], cardinality: int, by_position: bool
) -> None:
    node = build()._node
    assert node.cardinality() == cardinality
    elements = [int(x) for x in itertools.islice(elements_of(node.stream((0,))), LIMIT)]
    assert elements == expected
    for skipped in range(len(expected) + 1):
        stream = node.stream((0,))
        assert stream.skip(skipped) == skipped
        left = itertools.islice(elements_of(stream), LIMIT - skipped)
        assert [int(x) for x in left] == expected[skipped:]
    if cardinality != INFINITE_CARDINALITY:
        assert node.stream((0,)).skip(100) == len(expected)
    lookup = node.lookup((0,))
    assert (lookup is not None) is by_position
    if lookup is not None and expected:
        places = np.arange(len(expected))[::-1].copy()
        assert [int(x) for x in lookup(places).elements()] == expected[::-1]


def test_going_far_into_repetitions_skips_whole_ones() -> None:
    begun: list[tuple[int, ...]] = []
    dataset = r(10).shuffle(10, seed=1).repeat()
    inner = dataset._node.inputs[0]
    original = inner.stream
    inner.stream = lambda key: begun.append(key) or original(key)  # type: ignore[method-assign]
    stream = dataset._node.stream((0,))
    assert stream.skip(10**9 + 3) == 10**9 + 3
    assert begun == [(0, 10**8)]
    assert sorted(int(x) for x in itertools.islice(elements_of(stream), 7)) == sorted(
        int(x) for x in itertools.islice(elements_of(original((0, 10**8))), 3, 10)
    )


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
    monkeypatch.setattr("stratagem.data.sequence._MOST_IN_VAIN", 1000)
    dataset = Dataset.choose_from_datasets([r(2), r(2)], r(1).repeat(), stop_on_empty_dataset=False)
    with pytest.raises(InputError, match="named datasets that have ended, but dataset 1 has not ended"):
        list(dataset.batch(50).as_numpy_iterator())


def test_reduce_and_apply() -> None:
    total = Dataset.range(5).enumerate().reduce((0, 0.5), lambda state, pair: (state[0] + pair[0], state[1] + pair[1]))
    assert (int(total[0]), float(total[1])) == (10, 10.5)
    assert int(Dataset.range(0).reduce(np.int64(7), lambda state, x: state + x)) == 7
    assert [int(x) for x in r(9).apply(lambda dataset: dataset.skip(7))] == [7, 8]
    with pytest.raises(InputError, match="reduce_func is 3"):
        r(2).reduce(0, 3)
