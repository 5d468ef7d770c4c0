"""`interleave` and `flat_map` against tf.data's order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.data import AUTOTUNE, Dataset

# The orders that tensorflow 2.21 gives, as (number of the dataset, its element), for datasets of these lengths.
GOLDEN = [
    ([3, 1, 4], 2, 1, "00 10 01 02 20 21 22 23"),
    ([3, 0, 4, 2], 2, 2, "00 01 02 20 21 30 31 22 23"),
    ([5, 2, 1, 3, 4], 3, 2, "00 01 10 11 20 02 03 30 31 04 40 41 32 42 43"),
    ([1, 1, 1], 2, 3, "00 10 20"),
    ([4, 4], 5, 1, "00 10 01 11 02 12 03 13"),
]


def numbered(lengths: list[int], make: Callable[[int, int], Dataset]) -> Callable[[int], Dataset]:
    return lambda number: make(int(number), lengths[number])


def known(number: int, length: int) -> Dataset:
    return Dataset.range(number * 1000, number * 1000 + length)


def streamed(number: int, length: int) -> Dataset:
    return Dataset.from_generator(lambda: iter(range(number * 1000, number * 1000 + length)))


def mixed(number: int, length: int) -> Dataset:
    return (known if number % 2 else streamed)(number, length)


def plainly(lengths: list[int], cycle_length: int, block_length: int) -> list[int]:
    """tf.data's rule, one element at a time. It gives the order of tensorflow 2.21 for random lengths as well."""
    waiting = [iter(known(k, length).as_numpy_iterator()) for k, length in enumerate(lengths)]
    slots: list[Iterator[Any] | None] = [None] * cycle_length
    out: list[int] = []
    for slot in itertools.cycle(range(cycle_length)):
        if slots[slot] is None and waiting:
            slots[slot] = waiting.pop(0)
        turn = list(itertools.islice(slots[slot] or iter(()), block_length))
        out += map(int, turn)
        if len(turn) < block_length:
            slots[slot] = None
        if not waiting and not any(slots):
            return out
    raise AssertionError


@pytest.mark.parametrize(("lengths", "cycle_length", "block_length", "expected"), GOLDEN)
def test_order_is_that_of_tf_data(lengths: list[int], cycle_length: int, block_length: int, expected: str) -> None:
    order = [1000 * int(name[0]) + int(name[1]) for name in expected.split()]
    assert plainly(lengths, cycle_length, block_length) == order
    for make in (known, streamed, mixed):
        dataset = Dataset.range(len(lengths)).interleave(numbered(lengths, make), cycle_length, block_length)
        assert [int(x) for x in dataset] == order
        assert dataset.batch(4).unbatch().cardinality() == -2
        assert np.concatenate(list(dataset.batch(5).as_numpy_iterator())).tolist() == order


@pytest.mark.parametrize("make", [known, streamed, mixed])
def test_any_lengths_in_pieces_of_any_size(
    make: Callable[[int, int], Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    for _ in range(40):
        monkeypatch.setattr("stratagem.data.interleave._ROWS_AHEAD", draw.choice([1, 7, 4096]))
        lengths = [draw.choice([0, 1, 2, 3, 8, 21]) for _ in range(draw.randint(0, 8))]
        cycle_length, block_length = draw.randint(1, 5), draw.randint(1, 4)
        dataset = Dataset.range(len(lengths)).interleave(numbered(lengths, make), cycle_length, block_length)
        expected = plainly(lengths, cycle_length, block_length) if lengths else []
        skipped, batch = draw.randint(0, sum(lengths) + 2), draw.randint(1, 9)
        read = [x for part in dataset.skip(skipped).batch(batch).as_numpy_iterator() for x in part.tolist()]
        assert read == expected[skipped:], (lengths, cycle_length, block_length, skipped, batch)


def test_skipping_reads_nothing_where_lengths_are_known() -> None:
    read: list[int] = []

    def noted(x: np.int64) -> np.int64:
        read.append(int(x))
        return x

    lengths = [700, 30, 900]
    dataset = Dataset.range(3).interleave(lambda k: known(int(k), lengths[k]).map(noted), 2, 3)
    expected = plainly(lengths, 2, 3)
    assert [int(x) for x in dataset.skip(1200).take(3)] == expected[1200:1203] == read


def test_a_worker_reads_its_rows_only() -> None:
    read: list[int] = []

    def noted(x: np.int64) -> np.int64:
        read.append(int(x))
        return x

    dataset = Dataset.range(4).interleave(lambda k: known(int(k), 50).map(noted)).batch(20)
    mine = [batch.data for batch in dataset.batches(lambda rows: slice(rows // 2, rows))]
    assert sorted(np.concatenate(mine).tolist()) == sorted(read)
    assert len(read) == 100


def test_a_stream_is_read_no_further_than_asked() -> None:
    read: list[int] = []

    def numbers(number: int) -> Iterator[int]:
        for k in range(100):
            read.append(100 * number + k)
            yield read[-1]

    dataset = Dataset.range(3).interleave(lambda n: Dataset.from_generator(lambda: numbers(int(n))))
    assert [int(x) for x in dataset.take(4)] == [0, 100, 200, 1] == read
    read.clear()
    next(dataset.batch(30).as_numpy_iterator())
    assert len(read) == 30


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: Dataset.range(4).interleave(lambda n: Dataset.range(n)), 6),
        (lambda: Dataset.range(4).flat_map(lambda n: Dataset.range(n)).batch(4), 2),
        (lambda: Dataset.range(3).flat_map(lambda n: Dataset.range(n).filter(bool)), -2),
        (lambda: Dataset.range(3).flat_map(lambda n: Dataset.range(5).repeat()), -1),
        (lambda: Dataset.range(3).repeat().flat_map(lambda n: Dataset.range(n + 1)), -1),
        (lambda: Dataset.range(3).filter(bool).flat_map(lambda n: Dataset.range(n)), -2),
        (lambda: Dataset.range(0).flat_map(lambda n: Dataset.range(n)), 0),
        (lambda: Dataset.range(10**6).flat_map(lambda n: Dataset.range(n)), -2),
    ],
)
def test_cardinality_is_known_where_the_parts_know_theirs(build: Callable[[], Dataset], expected: int) -> None:
    assert build().cardinality() == expected


def test_flat_map_of_endless_datasets() -> None:
    dataset = Dataset.range(5, 7).interleave(lambda n: Dataset.from_tensors(n).repeat(), cycle_length=2)
    assert [int(x) for x in dataset.skip(10**9 + 1).take(3)] == [6, 5, 6]


def test_a_file_name_is_given_once() -> None:
    asked: list[bytes] = []

    def dataset_of(name: bytes) -> Dataset:
        asked.append(name)
        return Dataset.range(len(name))

    dataset = Dataset.from_tensor_slices([b"a", b"bb"]).shuffle(2, seed=1).repeat(3).flat_map(dataset_of)
    for _ in range(2):
        assert sorted(int(x) for x in dataset) == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert sorted(asked) == [b"a", b"bb"]


def test_a_shuffle_inside_follows_the_seeds_of_the_dataset() -> None:
    def shuffled(name: bytes) -> Dataset:
        return Dataset.range(50).shuffle(50)  # draws a seed of its own on every worker

    def orders(dataset: Dataset) -> list[list[int]]:
        return [batch.data.tolist() for batch in dataset.batches(iteration=0)]

    names = Dataset.from_tensor_slices([b"a", b"b"])
    chief, other = (names.flat_map(shuffled).batch(50) for _ in range(2))
    assert len(chief.random_seeds()) == 1
    assert orders(chief) != orders(other)
    agreed = other.with_random_seeds(chief.random_seeds())
    assert orders(agreed) == orders(chief)
    first, second = orders(chief)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    fixed = [orders(names.flat_map(lambda name: Dataset.range(50).shuffle(50, seed=7)).batch(50)) for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_position_is_found_again_on_another_number_of_workers() -> None:
    lengths = [13, 40, 7, 22, 31]
    dataset = Dataset.range(5).shuffle(5, seed=3).interleave(numbered(lengths, mixed), 3, 2).repeat(2).batch(10)
    batches = dataset.batches()
    for _ in range(13):
        next(batches)
    again = dataset.batches(lambda rows: slice(rows // 3, rows))
    again.set_state(batches.get_state())
    assert [b.data.tolist() for b in again] == [b.data.tolist()[b.rows // 3 :] for b in batches]


def test_element_spec() -> None:
    dataset = Dataset.range(3).flat_map(lambda n: Dataset.from_tensors({"x": np.zeros(3, np.uint8)}))
    assert dataset.element_spec["x"].shape == (3,)
    with pytest.raises(InputError, match="given to interleave or flat_map is empty"):
        _ = Dataset.range(0).flat_map(lambda n: Dataset.range(n)).element_spec


def test_what_cannot_be_interleaved() -> None:
    assert [int(x) for x in Dataset.range(2).interleave(lambda n: Dataset.range(2), AUTOTUNE, None, AUTOTUNE)] == [
        *(0, 0, 1, 1)
    ]
    with pytest.raises(InputError, match="cycle_length is 0"):
        Dataset.range(2).interleave(lambda n: Dataset.range(2), cycle_length=0)
    with pytest.raises(InputError, match="block_length is 0"):
        Dataset.range(2).interleave(lambda n: Dataset.range(2), block_length=0)
    with pytest.raises(InputError, match="map_func is 3"):
        Dataset.range(2).flat_map(3)
    with pytest.raises(InputError, match=r"given to interleave or flat_map returned int64"):
        list(Dataset.range(2).flat_map(lambda n: n))
