"""The seam to training: shares of workers, order, state, and which rows are read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optree
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Batch, Dataset, TensorSpec
from stratagem.data.batches import RowsOf

LIMIT = 12
"""Batches read from a dataset that never ends."""


def share(worker: int, workers: int) -> RowsOf:
    """The balanced contiguous share of a worker."""
    return lambda rows: slice(rows * worker // workers, rows * (worker + 1) // workers)


def images(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return {"image": np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3)}, np.arange(count)


def generated(count: int) -> Dataset:
    signature = (TensorSpec((2,), "float32"), TensorSpec((), "int32"))
    return Dataset.from_generator(lambda: (([i, i + 0.5], i) for i in range(count)), output_signature=signature)


def arrays(count: int) -> Dataset:
    return Dataset.from_tensor_slices(images(count))


PIPELINES: dict[str, Callable[[], Dataset]] = {
    "arrays": lambda: arrays(23).batch(5),
    "arrays, fewer than workers": lambda: arrays(2).batch(4),
    "last batch of one row": lambda: arrays(9).batch(4),
    "drop remainder": lambda: arrays(23).batch(5, drop_remainder=True),
    "shuffled": lambda: arrays(23).shuffle(23, seed=1).batch(5),
    "shuffled in a window": lambda: arrays(23).shuffle(7, seed=1).batch(5),
    "shuffled and repeated": lambda: arrays(13).shuffle(13, seed=1).repeat().batch(5),
    "repeated and shuffled": lambda: arrays(13).repeat().shuffle(20, seed=1).batch(5),
    "shuffled, repeated, shuffled": lambda: arrays(13).shuffle(5, seed=1).repeat(3).shuffle(9, seed=2).batch(4),
    "order kept": lambda: arrays(13).shuffle(13, 1, reshuffle_each_iteration=False).repeat(3).batch(5),
    "batches shuffled": lambda: arrays(23).batch(3).shuffle(4, seed=3),
    "mapped": lambda: arrays(23).map(lambda x, y: (x["image"] * 2, y)).shuffle(9, seed=1).batch(5),
    "mapped after batch": lambda: arrays(23).shuffle(9, seed=1).batch(5).map(lambda x, y: (x["image"] / 255, y)),
    "filtered": lambda: arrays(23).filter(lambda x, y: y % 3 > 0).shuffle(4, seed=2).batch(5),
    "mapped and filtered": lambda: arrays(23).map(lambda x, y: y * 2).filter(lambda y: y % 3 > 0).batch(5),
    "generated": lambda: generated(17).batch(5),
    "generated and shuffled": lambda: generated(17).shuffle(6, seed=1).repeat(2).batch(5),
    "ranges": lambda: Dataset.range(17).shuffle(17, seed=0).batch(6),
    "concatenated": lambda: arrays(9).concatenate(arrays(8)).shuffle(17, seed=5).batch(4),
    "concatenated of two kinds": lambda: (
        Dataset.range(9).concatenate(Dataset.range(9).map(lambda x: -x)).shuffle(6, seed=5).batch(4)
    ),
    "zipped": lambda: Dataset.zip((Dataset.range(11).shuffle(11, seed=4), arrays(30))).batch(4),
    "batches zipped": lambda: Dataset.zip((Dataset.range(11).batch(4), arrays(11).batch(4))),
    "rebatched": lambda: arrays(23).batch(5).unbatch().batch(7),
    "generated batches": lambda: Dataset.from_generator(lambda: (np.full((i % 3 + 1, 2), i) for i in range(7))),
    "generated batches rebatched": lambda: (
        Dataset.from_generator(lambda: (np.full((3, 2), i) for i in range(7))).unbatch().shuffle(5, seed=1).batch(4)
    ),
    "cached": lambda: arrays(23).map(lambda x, y: y + 1).cache().shuffle(23, seed=1).repeat(2).batch(5),
    "batches cached": lambda: arrays(11).map(lambda x, y: y + 1).batch(4).cache().repeat(2),
    "shuffle cached": lambda: arrays(11).shuffle(5, seed=1).cache().repeat(2).batch(4),
    "taken": lambda: arrays(23).shuffle(23, seed=1).skip(3).take(11).batch(4),
    "sharded": lambda: arrays(23).shuffle(23, seed=1).shard(2, 1).batch(4),
    "enumerated": lambda: arrays(9).enumerate().batch(4),
    "one tensor": lambda: Dataset.from_tensors(images(7)),
    "batch of batches": lambda: arrays(16).batch(2).batch(3),
}

pipelines = pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in PIPELINES.items()])


def first(batches: Iterator[Batch], count: int = LIMIT) -> list[Batch]:
    return list(itertools.islice(batches, count))


def plain(tree: Any) -> Any:
    return optree.tree_map(lambda leaf: (leaf.dtype.str, leaf.tolist()), tree)


def joined(parts: list[Any]) -> Any:
    return optree.tree_map(lambda *leaves: np.concatenate(leaves), *parts)


@pipelines
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_shares_make_up_the_global_batches(build: Callable[[], Dataset], workers: int) -> None:
    whole = first(build().batches())
    shares = [first(build().batches(share(worker, workers))) for worker in range(workers)]
    assert len(whole) > 0
    assert {len(batches) for batches in shares} == {len(whole)}, "all workers end together"
    for step, batch in enumerate(whole):
        assert {batches[step].rows for batches in shares} == {batch.rows}
        assert plain(joined([batches[step].data for batches in shares])) == plain(batch.data)


@pipelines
def test_batches_are_the_elements(build: Callable[[], Dataset]) -> None:
    elements = list(itertools.islice(build().as_numpy_iterator(), LIMIT))
    batches = first(build().batches())
    assert [plain(batch.data) for batch in batches] == [plain(element) for element in elements]
    assert [batch.rows for batch in batches] == [len(optree.tree_leaves(element)[0]) for element in elements]


@pipelines
@pytest.mark.parametrize("prefetch", [0, 2])
def test_state_restores_at_every_cut_with_another_number_of_workers(
    build: Callable[[], Dataset], prefetch: int
) -> None:
    whole = [plain(batch.data) for batch in first(build().batches(iteration=1))]
    for cut in range(len(whole) + 1):
        before = build().batches(share(0, 2), prefetch=prefetch, iteration=1)
        first(before, cut)
        state = json.loads(json.dumps(before.get_state()))
        before.close()
        workers = 1 + cut % 3
        after = [build().batches(share(worker, workers), prefetch=prefetch) for worker in range(workers)]
        for iterator in after:
            iterator.set_state(state)
            assert iterator.get_state() == state
        left = [first(iterator, LIMIT - cut) for iterator in after]
        for iterator in after:
            iterator.close()
        assert [plain(joined([part.data for part in parts])) for parts in zip(*left, strict=True)] == whole[cut:]


@pipelines
def test_groups_hold_the_batches_that_come_one_by_one(build: Callable[[], Dataset]) -> None:
    alone, groups = (build().batches(share(1, 2), iteration=1, together=number) for number in (0, 3))
    for _ in range(LIMIT):
        expected, batch = next(alone, None), next(groups, None)
        assert (expected is None) == (batch is None)
        if expected is not None and batch is not None:
            assert (batch.rows, plain(batch.data)) == (expected.rows, plain(expected.data))
        assert groups.get_state() == alone.get_state()


def test_a_group_is_read_at_once() -> None:
    batches = list(arrays(23).shuffle(23, seed=1).batch(5).batches(together=3))
    bases = [batch.data[1].base for batch in batches]
    assert [base is bases[0] for base in bases] == [True, True, True, False, False]
    assert [len(base) for base in bases] == [15, 15, 15, 8, 8]


def test_small_batches_are_read_many_at_a_time() -> None:
    batches = list(arrays(500).shuffle(500, seed=1).batch(5).batches())
    lengths = [len(batch.data[1].base) for batch in batches]
    assert lengths == [5] + 96 * [160] + 3 * [15]  # the first tells how large they are
    assert sorted(np.concatenate([batch.data[1] for batch in batches]).tolist()) == list(range(500))


def test_large_batches_are_read_one_by_one() -> None:
    rows = Dataset.from_tensor_slices(np.zeros((16, 1 << 18), np.float32)).shuffle(16, seed=1)  # of 1 MiB
    lengths = [len(batch.data if batch.data.base is None else batch.data.base) for batch in rows.batch(2).batches()]
    assert lengths == [2] + 6 * [4] + [2]
    lengths = [len(batch.data if batch.data.base is None else batch.data.base) for batch in rows.batch(3).batches()]
    assert lengths == 5 * [3] + [1]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["shuffled", "shuffled in a window", "filtered", "generated and shuffled"])
def test_every_example_exactly_once_a_repetition(name: str, workers: int) -> None:
    seen: list[int] = []
    for worker in range(workers):
        for batch in PIPELINES[name]().batches(share(worker, workers)):
            seen += batch.data[1].tolist()
    expected = {"filtered": [y for y in range(23) if y % 3], "generated and shuffled": 2 * list(range(17))}
    assert sorted(seen) == sorted(expected.get(name, list(range(23))))


def test_iterations_differ_and_are_counted() -> None:
    dataset = arrays(20).shuffle(20, seed=3).batch(20)

    def order(**options: Any) -> list[int]:
        return next(dataset.batches(**options)).data[1].tolist()

    zero, one = order(), order()
    assert zero != one
    assert order(iteration=0) == zero
    assert order() == one, "an iteration that was set is counted on from"
    assert next(iter(dataset))[1].tolist() not in (zero, one), "iter() counts too"
    again = arrays(20).shuffle(20, seed=3).batch(20)
    assert next(again.batches()).data[1].tolist() == zero


def test_unseeded_datasets_differ_until_they_share_seeds() -> None:
    chief, worker = (Dataset.range(50).shuffle(50).repeat().shuffle(9).batch(50) for _ in range(2))
    assert len(chief.random_seeds()) == 2
    assert next(chief.batches()).data.tolist() != next(worker.batches()).data.tolist()
    same = worker.with_random_seeds(json.loads(json.dumps(chief.random_seeds())))
    assert next(same.batches(iteration=4)).data.tolist() == next(chief.batches(iteration=4)).data.tolist()


def test_state_brings_its_seeds() -> None:
    before = Dataset.range(30).shuffle(30).batch(4)
    iterator = before.batches()
    next(iterator)
    after = Dataset.range(30).shuffle(30).batch(4).batches()
    after.set_state(iterator.get_state())
    assert [batch.data.tolist() for batch in after] == [batch.data.tolist() for batch in iterator]


def test_shared_step_keeps_one_seed() -> None:
    shuffled = Dataset.range(9).shuffle(9)
    pair = Dataset.zip((shuffled, shuffled.map(lambda x: x))).batch(9)
    assert len(pair.random_seeds()) == 1
    left, right = next(pair.with_random_seeds([5]).batches()).data
    assert left.tolist() == right.tolist()


def recording() -> tuple[list[int], Callable[[Any], Any]]:
    calls: list[int] = []

    def double(x: Any) -> Any:
        calls.append(int(x))
        return x * 2

    return calls, double


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_worker_maps_only_its_rows(worker: int) -> None:
    calls, double = recording()
    dataset = Dataset.range(40).map(double).shuffle(16, seed=1).repeat(2).batch(8)
    doubled = [x for batch in dataset.batches(share(worker, 3)) for x in batch.data.tolist()]
    assert [2 * x for x in calls] == doubled
    assert len(calls) == pytest.approx(80 / 3, abs=10)


def test_rows_that_are_skipped_are_not_read() -> None:
    calls, double = recording()
    dataset = Dataset.range(60_000).map(double).shuffle(60_000, seed=1).repeat().batch(128)
    iterator = dataset.batches()
    iterator.set_state({"iteration": 0, "batches": 46_900, "seeds": [1]})
    assert calls == []
    assert len(next(iterator).data) == 128
    assert len(calls) == 128


def test_an_empty_share_has_shapes() -> None:
    calls, double = recording()
    dataset = Dataset.range(7).map(double).map(lambda x: (np.full((2, 3), x, np.float32), x)).batch(3)
    batches = list(dataset.batches(lambda rows: slice(rows, rows)))
    assert [batch.rows for batch in batches] == [3, 3, 1]
    assert {batch.data[0].shape for batch in batches} == {(0, 2, 3)}
    assert {batch.data[0].dtype for batch in batches} == {np.dtype(np.float32)}
    assert calls == [0], "one row tells shapes and dtypes"


def test_an_empty_last_share_reads_nothing() -> None:
    calls, double = recording()
    batches = list(Dataset.range(5).map(double).batch(4).batches(share(0, 2)))
    assert [batch.data.tolist() for batch in batches] == [[0, 2], []]
    assert calls == [0, 1]


@pytest.mark.parametrize("state", [{}, None, {"iteration": 0, "batches": "x", "seeds": []}, [1]])
def test_a_state_that_is_none(state: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)The state of a dataset is .*What to do: Give set_state what get_state"):
        Dataset.range(4).batch(2).batches().set_state(state)


def test_a_state_of_another_dataset() -> None:
    with pytest.raises(InputError, match="1 seeds for a dataset with 0 shuffles"):
        Dataset.range(4).batch(2).batches().set_state(Dataset.range(4).shuffle(4).batch(2).batches().get_state())


@pytest.mark.parametrize("prefetch", [0, 1])
def test_set_state_and_close_at_any_time(prefetch: int) -> None:
    iterator = Dataset.range(100).batch(2).batches(prefetch=prefetch)
    start = iterator.get_state()
    assert [next(iterator).data.tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    iterator.set_state(start)
    assert next(iterator).data.tolist() == [0, 1]
    iterator.close()
    iterator.close()
    assert list(iterator) == []
    assert iterator.get_state()["batches"] == 1
