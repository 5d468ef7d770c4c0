"""Which rows each worker reads at each step, under each policy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.group import Group

import stratagem
from stratagem.core.errors import InputError, UnsupportedError
from stratagem.data import AutoShardPolicy, Dataset, Options
from stratagem.data.experimental import SHARD_HINT
from stratagem.data.files.source import Files, FileSource
from stratagem.data.sharding.autoshard import choose_policy
from stratagem.data.specs import TensorSpec
from stratagem.elastic.world import Bounds
from stratagem.feed.adapter import make_adapter
from stratagem.feed.batch import weighing
from stratagem.feed.dataset_source import DatasetSource

Shares = list[list[list[int]]]
"""At each step, the rows of each worker."""


def _with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _read(dataset: Dataset, workers: int, replicas_each: int = 1) -> Shares:
    """Read a pass on a group of workers; check that all see the same shares, as many steps as were announced."""

    def read(worker: Any) -> tuple[int | None, list[tuple[tuple[int, ...], list[int]]]]:
        source = DatasetSource(dataset, worker)
        steps = [(step.shares, np.ravel(step.local).tolist()) for step in source.open()]
        for shares, local in steps:
            assert sum(shares[replica] for replica in worker.mesh.local_replicas) == len(local)
        return source.num_batches, steps

    told = Group(workers, replicas_each).run(read)
    assert len({(announced, tuple(shares for shares, _ in steps)) for announced, steps in told}) == 1
    announced, steps = told[0]
    assert announced in (None, len(steps))
    return [[steps[step][1] for _, steps in told] for step in range(len(steps))]


def _rows(shares: Shares) -> list[int]:
    return [row for step in shares for own in step for row in own]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_shares_put_together_are_the_global_batches(workers: int) -> None:
    def shuffled() -> Dataset:
        return Dataset.range(10).shuffle(10).with_random_seeds([7]).batch(4)

    batches = [[row for own in step for row in own] for step in _read(shuffled(), workers)]
    assert batches == [batch.data.tolist() for batch in shuffled().batches()]


def test_all_workers_take_the_order_of_the_chief() -> None:
    orders = Group(3).run(lambda worker: DatasetSource(Dataset.range(9).shuffle(9).batch(3), worker).dataset)
    assert len({tuple(dataset.random_seeds()) for dataset in orders}) == 1


def _world(*, keeps_rows: bool) -> Any:
    """Return what a source asks of a world of three workers at the start."""
    return SimpleNamespace(keeps_rows_of_workers=keeps_rows, membership=SimpleNamespace(bounds=Bounds(1, 3, 3)))


@pytest.mark.parametrize("newcomer", [0, 1])
def test_a_new_worker_goes_on_to_the_order_that_is_next_for_the_others(newcomer: int) -> None:
    """Where workers may change they meet about an order each time, also about a dataset that some have read before."""
    group, expected = Group(2), []
    with_two = Dataset.range(9).shuffle(9).batch(3)

    def read(worker: Any) -> list[list[int]]:
        worker.mesh.world = _world(keeps_rows=False)
        if worker.worker_index == newcomer:
            dataset = Dataset.range(9).shuffle(9).batch(3)  # made later, with a seed of its own
        else:
            dataset = with_two
            worker.from_all, meet = lambda name, value: [value], worker.from_all
            before = DatasetSource(dataset, worker)
            for _ in range(2):
                list(before.open())
            seeded = dataset.with_random_seeds(dataset.random_seeds())
            expected.extend([[row for batch in seeded for row in batch.tolist()] for _ in range(3)][2])
            worker.from_all = meet
        source = DatasetSource(dataset, worker)
        return [rows.local.tolist() for rows in source.open()]

    first, second = group.run(read)
    assert [row for batch in zip(first, second, strict=True) for part in batch for row in part] == expected


def _read_from(
    state: Any, workers: int, make: Callable[[], Dataset], steps: int | None = None
) -> tuple[list[list[int]], Any, int | None]:
    """Read with so many workers that keep their rows; return each batch, the place behind them, and the length."""

    def read(worker: Any) -> tuple[list[list[int]], Any, int | None]:
        worker.mesh.world = _world(keeps_rows=True)
        worker.from_all = lambda name, value: [value] * workers
        source = DatasetSource(make(), worker)
        if state is not None:
            source.resume(state)
        source.begin_pass()
        length, reader = source.num_batches, source.open()
        parts: list[list[int]] = [np.ravel(rows.local).tolist() for rows in itertools.islice(reader, steps)]
        place = reader.get_state()
        source.begin_pass()
        assert source.num_batches == DatasetSource(make(), worker).num_batches  # that of the next pass
        reader.close()
        return parts, place, length

    told = Group(workers).run(read)
    assert all(place == told[0][1] and length == told[0][2] for _, place, length in told)
    batches = [[row for part in parts for row in part] for parts in zip(*(parts for parts, _, _ in told), strict=True)]
    return batches, told[0][1], told[0][2]


@pytest.mark.parametrize("behind", ["batch", "map", "prefetch", "repeat"])
def test_workers_keep_their_rows_where_their_number_changes(behind: str) -> None:
    """Three workers with four rows each, then two, then three again; then a run that was started with three."""

    def make() -> Dataset:
        dataset = Dataset.range(100).shuffle(100, seed=1).batch(12)
        if behind == "map":
            return dataset.map(lambda rows: rows)
        return dataset.prefetch(2) if behind == "prefetch" else dataset.repeat(1) if behind == "repeat" else dataset

    expected = [row for batch in make() for row in batch.tolist()]
    found: list[list[int]] = []
    place, lengths = None, []
    for workers, steps in ((3, 2), (2, 4), (3, 1), (1, 3), (3, None)):
        batches, place, length = _read_from(place, workers, make, steps)
        found += batches
        lengths.append(length)
    assert [len(batch) for batch in found] == [12, 12, 8, 8, 8, 8, 12, 4, 4, 4, 12, 8]
    assert [row for batch in found for row in batch] == expected
    # Batches before the change, and of the new size for the rows that are left: 2 + 76 / 8, 6 + 44 / 12, ...
    told = [9, 2 + 10, 6 + 4, 7 + 8, 10 + 2]
    assert lengths == (told if behind != "repeat" else [9, None, None, None, None])
    # A run whose batch is that of all workers goes on from there as well, with one worker and its own size.
    source = DatasetSource(make(), Group(1).run(lambda worker: worker)[0])
    source.resume({**place, "batches": 4})
    assert source.open().get_state()["sizes"] == [[2, 8], [4, 12]]


def test_batches_of_no_known_size_are_refused_where_workers_keep_their_rows() -> None:
    def refused(dataset: Dataset) -> str:
        def make(worker: Any) -> str:
            worker.mesh.world = _world(keeps_rows=True)
            with pytest.raises(UnsupportedError) as error:
                DatasetSource(dataset, worker)
            return str(error.value)

        return Group(2).run(make)[0]

    assert "does not say how many rows its batches have" in refused(Dataset.from_tensor_slices(np.zeros((4, 2))))
    assert "AutoShardPolicy.OFF" in refused(_with_policy(Dataset.range(8).batch(4), AutoShardPolicy.OFF))


def test_policy_off_gives_every_worker_everything() -> None:
    dataset = _with_policy(Dataset.range(8).batch(4), AutoShardPolicy.OFF)
    assert _read(dataset, 2) == [[[0, 1]] * 2, [[2, 3]] * 2, [[4, 5]] * 2, [[6, 7]] * 2]


def test_a_piece_that_does_not_divide_is_shared_by_the_workers_own_replicas() -> None:
    dataset = _with_policy(Dataset.range(6).batch(6), AutoShardPolicy.OFF)
    assert _read(dataset, 2, replicas_each=2) == [[[0, 1, 2]] * 2, [[3, 4, 5]] * 2]


def test_a_short_last_batch_is_cut_by_the_size_of_the_others() -> None:
    """Steps as `Dataset.rebatch([2, 2])` makes them in TensorFlow 2.21, which its strategies read."""

    def pieces(rows: int) -> Shares:
        return _read(_with_policy(Dataset.range(rows).batch(4), AutoShardPolicy.OFF), 2)

    assert pieces(6) == [[[0, 1]] * 2, [[2, 3]] * 2, [[4, 5]] * 2]
    assert pieces(7) == [[[0, 1]] * 2, [[2, 3]] * 2, [[4, 5]] * 2, [[6]] * 2]
    assert pieces(5) == [[[0, 1]] * 2, [[2, 3]] * 2, [[4]] * 2]


def test_a_pass_resumed_in_a_short_last_batch() -> None:
    dataset = _with_policy(Dataset.range(11).batch(6), AutoShardPolicy.OFF)

    def read(worker: Any) -> list[Any]:
        reader = DatasetSource(dataset, worker).open()
        for _ in range(3):
            next(reader)
        again = DatasetSource(dataset, worker).open(reader.get_state())
        return [[step.local.tolist() for step in each] for each in (reader, again)]

    assert Group(2).run(read) == [[[[9, 10]], [[9, 10]]]] * 2


def test_policy_hint_gives_each_worker_its_shard() -> None:
    dataset = _with_policy(Dataset.range(8).shard(SHARD_HINT, SHARD_HINT).batch(4), AutoShardPolicy.HINT)
    assert _read(dataset, 2) == [[[0, 2], [1, 3]], [[4, 6], [5, 7]]]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [1, 3, 12, 13, 23])
def test_policy_hint_reads_every_row_once(rows: int, workers: int) -> None:
    dataset = _with_policy(Dataset.range(rows).shard(SHARD_HINT, SHARD_HINT).batch(4), AutoShardPolicy.HINT)
    assert sorted(_rows(_read(dataset, workers))) == list(range(rows))


class _Numbers:
    """Files that hold their numbers, one after another, in int64."""

    def scan(self, path: str) -> tuple[int, Any]:
        return Path(path).stat().st_size // 8, None

    def open(self, path: str, layout: Any) -> Any:
        return np.fromfile(path, np.int64).take

    def spec(self, path: str) -> TensorSpec:
        return TensorSpec((), np.int64)


def _files(folder: Path, *counts: int) -> Dataset:
    """Return the dataset of files with so many rows each, which are 0, 1, 2 ... in their order."""
    ends = np.cumsum(counts).tolist()
    for number, (count, end) in enumerate(zip(counts, ends, strict=True)):
        np.arange(end - count, end).tofile(folder / f"{number}")
    return Dataset(Files(FileSource([str(folder / f"{k}") for k in range(len(counts))], _Numbers())), Options())


def test_policy_file_gives_each_worker_its_files(tmp_path: Path) -> None:
    dataset = _with_policy(_files(tmp_path, 4, 4, 4, 4).batch(4), AutoShardPolicy.FILE)
    assert _read(dataset, 2) == [
        [[0, 1], [4, 5]],
        [[2, 3], [6, 7]],
        [[8, 9], [12, 13]],
        [[10, 11], [14, 15]],
    ]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("counts", [(3, 3, 3, 3), (5, 0, 1, 9, 2), (0, 0, 0, 1), (1, 1, 1, 1), (40, 1, 2, 3, 4, 5)])
def test_policy_file_reads_every_row_once(counts: tuple[int, ...], workers: int, tmp_path: Path) -> None:
    dataset = _files(tmp_path, *counts).map(lambda row: row).shuffle(7, seed=1).batch(4)
    assert sorted(_rows(_read(_with_policy(dataset, AutoShardPolicy.FILE), workers))) == list(range(sum(counts)))


@pytest.mark.parametrize("policy", [AutoShardPolicy.DATA, AutoShardPolicy.AUTO])
def test_rows_of_files_are_those_of_the_global_batches(policy: AutoShardPolicy, tmp_path: Path) -> None:
    dataset = _with_policy(_files(tmp_path, 5, 0, 1, 9, 2).shuffle(17, seed=3).batch(4), policy)
    expected = [batch.data.tolist() for batch in dataset.batches()]
    for workers in (1, 2, 3, 4):
        again = dataset.with_random_seeds(dataset.random_seeds())
        assert [[row for own in step for row in own] for step in _read(again, workers)] == expected


def _in_turn(folder: Path, *counts: int) -> Dataset:
    _files(folder, *counts)
    names = Dataset.list_files([str(folder / f"{number}") for number in range(len(counts))], shuffle=False)
    return names.interleave(lambda name: Dataset(Files(FileSource([name.decode()], _Numbers())), Options()))


@pytest.mark.parametrize("rows", [8, 6, 7])
def test_auto_divides_by_files_where_no_batch_changes(rows: int, tmp_path: Path) -> None:
    """Also with a last batch that is not full; with 7 rows in each file it has 4 rows, one of each."""
    dataset = _in_turn(tmp_path, *[rows] * 4).map(lambda row: row).batch(8)
    expected = [batch.data.tolist() for batch in dataset.batches()]
    for workers in (1, 2, 4):
        shares = _read(dataset, workers)
        assert [sorted(row for own in step for row in own) for step in shares] == [sorted(batch) for batch in expected]
        for worker in range(workers):
            files = {row // rows for step in shares for row in step[worker]}
            assert files == set(range(worker, 4, workers))


@pytest.mark.parametrize(
    ("change", "workers", "reason"),
    [
        (lambda dataset: dataset.batch(8), 3, "4 files do not divide by 3 workers"),
        (lambda dataset: dataset.batch(6), 2, "a batch of 6 does not take as many records of each of 4 files"),
        (lambda dataset: dataset.shuffle(9, seed=1).batch(8), 2, "shuffle\\(\\) mixes the rows of the files"),
        (lambda dataset: dataset.batch(8).map(lambda rows: rows), 2, "batch\\(\\) is not the last step"),
    ],
)
def test_auto_says_why_it_does_not_divide_by_files(change: Any, workers: int, reason: str, tmp_path: Path) -> None:
    dataset = change(_in_turn(tmp_path, 6, 6, 6, 6))
    choice = choose_policy(dataset.options(), dataset, workers)
    assert choice.policy is AutoShardPolicy.DATA
    assert re.search(rf"auto-shard DATA \(AUTO, as {reason}\)", choice.reason)
    assert [[row for own in step for row in own] for step in _read(dataset, workers)] == [
        batch.data.tolist() for batch in dataset.batches(iteration=0)
    ]


def test_files_of_unequal_length_are_divided_by_rows(tmp_path: Path) -> None:
    dataset = _in_turn(tmp_path, 6, 5).batch(4)
    assert "the files have from 5 to 6 records" in choose_policy(dataset.options(), dataset, 2).reason


def test_a_position_by_files_is_one_by_rows(tmp_path: Path) -> None:
    """Two workers read by files, three go on by rows."""
    dataset = _in_turn(tmp_path, 6, 6, 6, 6).batch(4)

    def begun(worker: Any) -> Any:
        steps = DatasetSource(dataset, worker).open()
        next(steps)
        next(steps)
        return steps.get_state()

    state, _ = Group(2).run(begun)

    def rest(worker: Any) -> list[list[int]]:
        source = DatasetSource(dataset, worker)
        source.resume(state)
        return [step.local.tolist() for step in source.open()]

    shares = Group(3).run(rest)
    expected = [batch.data.tolist() for batch in dataset.batches(iteration=0)][2:]
    assert [[row for own in step for row in own] for step in zip(*shares, strict=True)] == expected


def test_fewer_files_than_workers_is_an_error(tmp_path: Path) -> None:
    dataset = _with_policy(_files(tmp_path, 4, 4).batch(4), AutoShardPolicy.FILE)
    with pytest.raises(InputError, match=r"FILE, but 3 workers share 2 file\(s\)"):
        _read(dataset, 3)


@pytest.mark.parametrize("policy", [AutoShardPolicy.OFF, AutoShardPolicy.HINT, AutoShardPolicy.FILE])
@pytest.mark.parametrize("taken", [0, 1, 2, 5, 7])
def test_streams_of_unequal_length_go_on_where_they_were(policy: AutoShardPolicy, taken: int, tmp_path: Path) -> None:
    """The chief's position is stored, and its stream is the shorter one."""
    dataset = _files(tmp_path, 2, 20).map(lambda row: row)
    if policy is AutoShardPolicy.HINT:
        dataset = dataset.shard(SHARD_HINT, SHARD_HINT)
    dataset = _with_policy(dataset.batch(3), policy)

    def read(worker: Any) -> tuple[Any, Any]:
        source = DatasetSource(dataset, worker)
        steps = source.open()
        for _ in range(taken):
            next(steps)
        state = worker.from_chief("state", steps.get_state())
        again = DatasetSource(dataset, worker)
        again.resume(state)
        assert again.position() == state
        return [step.local.tolist() for step in steps], [step.local.tolist() for step in again.open()]

    for rest, resumed in Group(2).run(read):
        assert resumed == rest


def test_class_weight_becomes_sample_weight() -> None:
    x, y = np.arange(6, dtype="float32")[:, None], np.array([0, 1, 2, 0, 1, 2])
    dataset = Dataset.from_tensor_slices((x, y)).batch(3)
    (source,) = Group(1).run(lambda worker: DatasetSource(dataset, worker, weighing({0: 1.0, 1: 0.5, 2: 4.0})))
    (_, first), _ = source.open()
    np.testing.assert_array_equal(first[2], [1.0, 0.5, 4.0])


def test_iterators_that_are_not_read_do_not_change_the_order() -> None:
    """Keras asks for a new iterator at the end of an epoch, and for another at the start of the next."""

    def shuffled() -> Dataset:
        return Dataset.range(12).shuffle(12, seed=5).batch(4)

    expected = shuffled()
    passes = [[batch.data.tolist() for batch in expected.batches()] for _ in range(2)]
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    adapter = make_adapter(strategy, {"x": shuffled(), "shuffle": False})
    for one_pass in passes:
        adapter.get_jax_iterator()
        iterator = adapter.get_jax_iterator()
        assert [np.asarray(batch).tolist() for batch in iterator] == one_pass
