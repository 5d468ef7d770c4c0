"""The order of shuffled datasets: tf.data's rule step by step, the window, uniformity, seeds."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from collections.abc import Callable
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


LONG = 2**20 + 1
"""The shortest dataset whose order is a permutation function instead of a sort."""


def numbers(*args: int) -> Dataset:
    return Dataset.range(*args)


LONG_INPUTS: dict[str, tuple[Callable[[], Dataset], Callable[[np.ndarray], Any]]] = {
    "range": (lambda: numbers(LONG), lambda i: i),
    "mapped": (lambda: numbers(LONG).map(lambda x: x * 3), lambda i: i * 3),
    "taken": (lambda: numbers(10**9).take(LONG), lambda i: i),
    "skipped": (lambda: numbers(LONG + 7).skip(7), lambda i: i + 7),
    "sharded": (lambda: numbers(3 * LONG).shard(3, 1), lambda i: 3 * i + 1),
    "repeated": (lambda: numbers(LONG // 2 + 1).repeat(2).take(LONG), lambda i: i % (LONG // 2 + 1)),
    "concatenated": (
        lambda: numbers(5).concatenate(numbers(10, LONG + 5)),
        lambda i: np.where(i < 5, i, i + 5),
    ),
    "numbered": (lambda: numbers(7, LONG + 7).enumerate(), lambda i: (i, i + 7)),
    "nested": (lambda: numbers(2 * LONG).skip(1).shard(2, 0).take(LONG - 9).map(lambda x: -x), lambda i: -2 * i - 1),
    "batched": (lambda: numbers(2 * LONG - 1).batch(2), lambda i: (2 * i, np.minimum(2 * i + 1, 2 * LONG - 2))),
}


@pytest.mark.parametrize("name", LONG_INPUTS)
def test_a_long_input_is_read_at_any_position(name: str) -> None:
    """The elements are those that a pass in order has at these positions."""
    build, element = LONG_INPUTS[name]
    length = int(build().cardinality())
    places = np.random.default_rng(1).integers(length, size=50)
    lookup = build()._node.lookup((0,))
    assert lookup is not None
    for place, found in zip(places.tolist(), lookup(places).elements(), strict=True):
        stream = build()._node.stream((0,))
        stream.skip(place)
        block = stream.pull(1)
        assert block is not None
        (expected,) = block.elements()
        assert np.array_equal(found, expected)
        said = np.unique(np.asarray(element(np.asarray(place))))
        assert np.array_equal(np.unique(np.asarray(expected)), said)


@pytest.mark.parametrize("buffer_size", [LONG, 10**12])
def test_a_long_shuffle_is_a_permutation_with_orders_of_its_own(buffer_size: int) -> None:
    dataset = numbers(LONG).shuffle(buffer_size, seed=3).batch(2**17)
    orders = [np.concatenate([batch.data for batch in dataset.batches(iteration=k)]) for k in (0, 1)]
    for image in orders:
        assert np.array_equal(np.bincount(image), np.ones(LONG))
    assert (orders[0] == orders[1]).sum() <= 8, "one is expected"
    other_seed = numbers(LONG).shuffle(buffer_size, seed=4).batch(2**17)
    assert (next(other_seed.batches(iteration=0)).data == orders[0][: 2**17]).sum() <= 8


def test_long_shuffles_of_shuffles_and_repetitions() -> None:
    """A shuffle of a shuffle, of each repetition by itself, and of repetitions together: each element as often."""
    once = numbers(LONG).shuffle(LONG, seed=1)
    for dataset, times in ((once.shuffle(LONG, seed=2), 1), (once.repeat(2).shuffle(2 * LONG, seed=2), 2)):
        image = np.concatenate([batch.data for batch in dataset.batch(2**17).batches()])
        assert np.array_equal(np.bincount(image), np.full(LONG, times))
    each = numbers(LONG).shuffle(LONG, seed=1).repeat(2).batch(LONG)
    first, second = (batch.data for batch in each.batches())
    assert np.array_equal(np.bincount(second), np.ones(LONG))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("sizes", [[1, 3, 100_000], [7], [20_000, 9]])
def test_a_long_order_does_not_depend_on_how_it_is_read(sizes: list[int]) -> None:
    whole = next(numbers(LONG).shuffle(LONG, seed=2).batch(60_000).batches()).data
    stream = numbers(LONG).shuffle(LONG, seed=2)._node.stream((0,))
    done = 0
    for turn, size in enumerate(itertools.cycle(sizes)):
        if turn % 3 == 2:
            assert stream.skip(size) == size
        else:
            block = stream.pull(size)
            assert block is not None
            size = len(block)
            until = min(done + size, len(whole))
            assert np.array_equal(block.gather()[: until - done], whole[done:until])
        done += size
        if done >= min(len(whole), 300 * max(sizes)):
            break
    assert stream.skip(2 * LONG) == LONG - done
    assert (stream.pull(1), stream.skip(1)) == (None, 0)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_billion_elements_take_little_memory(workers: int) -> None:
    """Begin, go to the middle, read, on every worker: under 50 MB, and no more than the arithmetic of one chunk."""
    dataset = numbers(10**9).shuffle(10**9, seed=1).batch(128)
    middle = {"iteration": 0, "batches": 3_906_250, "seeds": [1]}
    tracemalloc.start()
    try:
        shares = []
        for worker in range(workers):
            iterator = dataset.batches(lambda n, w=worker: slice(n * w // workers, n * (w + 1) // workers))
            iterator.set_state(middle)
            shares.append(np.concatenate([next(iterator).data.reshape(1, -1) for _ in range(3)]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6
    together = np.concatenate(shares, axis=1)
    assert together.shape == (3, 128)
    assert len(np.unique(together)) == 384
    stream = numbers(10**9).shuffle(10**9, seed=1)._node.stream((0,))
    assert stream.skip(128 * 3_906_250) == 500_000_000
    block = stream.pull(384)
    assert block is not None
    assert np.array_equal(block.gather(), together.ravel())


def test_the_longest_order_that_is_sorted_has_not_changed() -> None:
    """One element more, and the order is computed; see the test below for why neither may ever change."""
    image = next(numbers(2**20).shuffle(2**20, seed=42).batch(6).batches()).data
    bits = np.random.Philox(np.random.SeedSequence(42, spawn_key=(0,))).random_raw(2**20)
    assert image.tolist() == np.argsort(bits, kind="stable")[:6].tolist()


def test_the_long_order_that_stored_states_rely_on() -> None:
    """As above: a run stores seeds and a position, so an order that changes repeats and loses examples on resuming."""
    dataset = numbers(LONG).shuffle(LONG, seed=42).repeat().batch(3)
    assert next(dataset.batches(iteration=0)).data.tolist() == [353031, 440255, 688677]
    assert next(dataset.batches(iteration=1)).data.tolist() == [511847, 16742, 689623]


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda rows: rows.shuffle(64, seed=1), id="generator"),
        pytest.param(lambda rows: rows.map(lambda x: x).shuffle(64, seed=1), id="mapped"),
        pytest.param(lambda rows: rows.filter(lambda x: bool(x[0] % 2)).shuffle(64, seed=1), id="filtered"),
        pytest.param(lambda rows: rows.shuffle(32, seed=1).shuffle(32, seed=2), id="shuffled twice"),
        pytest.param(lambda rows: rows.batch(4).unbatch().shuffle(64, seed=1), id="rebatched"),
    ],
)
def test_a_window_over_a_long_stream_stays_a_window(build: Callable[[Dataset], Dataset]) -> None:
    """Of 5,000 elements (40 MB) no more are held than the buffer and the chunk on its way through it."""
    tracemalloc.start()
    try:
        rows = Dataset.from_generator(lambda: (np.full(1000, number) for number in range(5_000)))
        peaks = []
        for count, _ in enumerate(build(rows).batch(8).as_numpy_iterator()):
            if count in (100, 300):
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.reset_peak()
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert max(peaks) < 4 * 64 * 8000, peaks
