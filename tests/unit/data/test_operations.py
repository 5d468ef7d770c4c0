"""Operations that read in order: workers share their elements, passes are resumed, and reader processes read them.

That the elements are TensorFlow's is in `tests/unit/tf/data`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset, Options


def _source() -> Dataset:
    return Dataset.range(60).shuffle(60, seed=3)


def _unless_0(n: Any) -> Any:
    if n % 5 == 0:
        raise ValueError("not this one")
    return n


def _of_words(n: Any) -> np.ndarray:
    return np.full(int(n) % 7 + 1, n)


PIPELINES: dict[str, Callable[[Path], Dataset]] = {
    "scan": lambda _: _source().scan(np.int64(0), lambda state, x: (state + x, state)).repeat(2).batch(8),
    "take_while": lambda _: Dataset.range(90).map(lambda x: x * 2).take_while(lambda x: x < 100).batch(8),
    "unique": lambda _: _source().map(lambda x: x % 20).unique().repeat(3).batch(8),
    "ignore_errors": lambda _: _source().map(_unless_0).ignore_errors().batch(8),
    "rejection_resample": lambda _: (
        _source().rejection_resample(lambda x: x % 2, [0.9, 0.1], seed=4).map(lambda label, x: x).repeat(2).batch(4)
    ),
    "window": lambda _: _source().window(5, shift=2, drop_remainder=True).flat_map(lambda w: w.batch(5)).batch(8),
    "shuffled windows": lambda _: (
        Dataset.range(60).window(10).flat_map(lambda w: w.shuffle(10, seed=1)).repeat(2).batch(8)
    ),
    "group_by_window": lambda _: _source().group_by_window(lambda x: x % 3, lambda key, x: x.batch(4), 4).repeat(2),
    "shuffled groups": lambda _: _source().group_by_window(lambda x: x % 3, lambda key, x: x.shuffle(9), 9).batch(8),
    "buckets": lambda _: _source().map(_of_words).bucket_by_sequence_length(len, [3, 5], [4, 4, 4]).repeat(2),
    "rebatch": lambda _: _source().batch(9).rebatch([4, 6]).repeat(2),
    "ragged_batch": lambda _: _source().map(_of_words).ragged_batch(8).map(lambda batch: batch.to_tensor()),
    "random": lambda _: Dataset.random(seed=5).take(40).batch(8),
    "counter": lambda _: Dataset.counter(3, 2).take(40).batch(8),
    "assert_cardinality": lambda _: _source().filter(lambda x: x % 2 == 0).assert_cardinality(30).batch(8),
    "cache": lambda folder: _source().map(lambda x: x * 3).cache(folder / "cache").shuffle(20, seed=1).batch(8),
    "snapshot": lambda folder: _source().map(lambda x: x * 3).snapshot(folder, compression="GZIP").repeat(2).batch(8),
}


@pytest.fixture(params=sorted(PIPELINES))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Dataset]:
    seeds = PIPELINES[request.param](tmp_path).random_seeds()
    return lambda: PIPELINES[request.param](tmp_path).with_random_seeds(seeds)


def rows(batches: Any) -> list[list[Any]]:
    return [batch.data.tolist() for batch in batches]


def test_workers_share_each_batch(make: Callable[[], Dataset]) -> None:
    whole = rows(make().batches())
    shares = [rows(make().batches(lambda n, i=i: slice(n * i // 3, n * (i + 1) // 3))) for i in range(3)]
    assert [[*itertools.chain(*parts)] for parts in zip(*shares, strict=True)] == whole
    assert len(whole) > 1


def test_a_pass_is_resumed_at_each_batch(make: Callable[[], Dataset]) -> None:
    whole = rows(make().batches())
    iterator = make().batches()
    for position in range(len(whole)):
        resumed = make().batches()
        resumed.set_state(json.loads(json.dumps(iterator.get_state())))
        assert rows(resumed) == whole[position:]
        next(iterator)


def test_each_pass_of_a_dataset_is_that_of_another_object(make: Callable[[], Dataset]) -> None:
    dataset = make()
    passes = [rows(dataset.batches()) for _ in range(2)]
    assert rows(make().batches(iteration=1)) == passes[1]
    assert rows(make().batches(iteration=0)) == passes[0]


@pytest.mark.thorough
def test_reader_processes_read_the_same(make: Callable[[], Dataset]) -> None:
    options = Options()
    options.reader_processes = 1
    assert rows(make().with_options(options).batches(prefetch=2)) == rows(make().batches())


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda d: d.window(3, shift=0), "shift is 0"),
        (lambda d: list(d.window(3).batch(2)), r"window\(size\)\.flat_map"),
        (lambda d: d.window(3).batch(2).element_spec, r"window\(size\)\.flat_map"),
        (lambda d: d.group_by_window(lambda x: x, lambda k, x: x), "window_size is None"),
        (lambda d: list(d.group_by_window(lambda x: 0.5, lambda k, x: x, 2)), "returned array"),
        (lambda d: list(d.group_by_window(lambda x: x, lambda k, x: 3, 2)), "reduce_func returned int"),
        (lambda d: list(d.group_by_window(lambda x: x, lambda k, x: x, 0)), "window_size is 0"),
        (lambda d: d.rejection_resample(lambda x: x, [0.5, 0.6]), "must sum to 1"),
        (lambda d: d.rejection_resample(lambda x: x, [0.5, 0.5], [1.0, 0.0]), "a class that the data does not have"),
        (lambda d: list(d.rejection_resample(lambda x: x, [0.5, 0.5])), "from 0 to 1"),
        (lambda d: list(d.scan(0, lambda state, x: x)), "Return two values"),
        (lambda d: list(d.scan(0, lambda state, x: (x, x))), "state of int32, and returned one of int64"),
        (lambda d: list(d.take_while(lambda x: x)), "Return one boolean"),
        (lambda d: d.assert_cardinality(5), "has 6 elements"),
        (lambda d: list(d.filter(lambda x: x > 3).assert_cardinality(5)), "has 2 elements"),
        (lambda d: list(d.filter(lambda x: x > 3).assert_cardinality(1)), "has more elements"),
        (lambda d: d.bucket_by_sequence_length(lambda x: x, [3, 2], [1, 1, 1]), "increasing boundaries"),
        (lambda d: d.rebatch([2, 0]), "batch_size is 0"),
        (lambda d: d.get_single_element(), "several elements"),
    ],
)
def test_what_is_refused(refused: Callable[[Dataset], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        refused(Dataset.range(6))


def test_classes_come_as_often_as_wanted() -> None:
    """8000 draws: the shares are within 5 standard deviations of those that are wanted."""
    data = Dataset.range(8000).map(lambda x: np.int64(x % 10 == 0))
    for initial in (None, [0.9, 0.1]):
        labels = [int(label) for label, _ in data.rejection_resample(lambda x: x, [0.5, 0.5], initial, seed=1)]
        assert len(labels) > 1200
        assert abs(np.mean(labels) - 0.5) < 5 * 0.5 / np.sqrt(len(labels))


def test_errors_without_end_are_told() -> None:
    calls = []

    def function(x: Any) -> Dataset:
        calls.append(x)
        raise OSError("the disk is gone")

    with pytest.raises(InputError, match=r"1000 errors in a row[^$]*the disk is gone"):
        list(Dataset.counter().flat_map(function).ignore_errors())
    assert len(calls) == 1000


def test_what_a_function_ends_is_told() -> None:
    """The groups that are not full are lost with an error."""
    with pytest.raises(InputError, match="1000 errors in a row"):
        list(Dataset.range(9).group_by_window(_unless_0, lambda key, x: x, 2).ignore_errors())


def test_nothing_behind_the_last_element_is_read() -> None:
    seen: list[int] = []
    dataset = Dataset.range(9).map(lambda x: seen.append(int(x)) or x).take_while(lambda x: x < 2)
    assert len(list(dataset)) == 2
    assert seen == [0, 1, 2]


def test_a_window_calls_a_function_once_for_each_element() -> None:
    seen: list[int] = []
    dataset = Dataset.range(6).map(lambda x: (seen.append(int(x)), (x, -x))[1]).window(4, shift=1, drop_remainder=True)
    pairs = dataset.flat_map(lambda x, y: Dataset.zip(x.batch(4), y.batch(4)))
    assert [x.tolist() for x, _ in pairs] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert seen.count(5) == 1
