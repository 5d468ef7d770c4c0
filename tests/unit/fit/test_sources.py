"""Which rows a worker reads of each global batch, seen from each of several workers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import stratagem
from stratagem.data import AutoShardPolicy, Dataset, Options
from stratagem.data.experimental import SHARD_HINT
from stratagem.fit.adapter import make_adapter
from stratagem.fit.sources import DatasetSource
from stratagem.replica.mesh import ReplicaMesh


class OtherWorker:
    """Worker `index` of `count`, one replica on each, as far as a source can see."""

    def __init__(self, index: int, count: int) -> None:
        self.mesh = ReplicaMesh(jax.devices()[:count])
        self.mesh.local_replicas = (index,)
        self.worker_index, self.worker_count = index, count
        self.is_chief = False

    def from_chief(self, name: str, value: Any) -> Any:
        return [7] * len(value)

    def from_all(self, name: str, value: Any) -> list[Any]:
        return [value] * self.worker_count


def _with_policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _read(dataset: Dataset, index: int, count: int) -> list[tuple[int, list[int]]]:
    source = DatasetSource(dataset, OtherWorker(index, count))  # pyright: ignore[reportArgumentType]
    return [(rows, data.tolist()) for rows, data in source.open()]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_shares_put_together_are_the_global_batches(workers: int) -> None:
    def shuffled() -> Dataset:
        return Dataset.range(10).shuffle(10).with_random_seeds([7]).batch(4)

    shares = [_read(shuffled(), worker, workers) for worker in range(workers)]
    batches = [[row for share in shares for row in share[step][1]] for step in range(3)]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert sorted(row for batch in batches for row in batch) == list(range(10))
    assert batches == [batch.data.tolist() for batch in shuffled().batches()]


def test_policy_off_gives_every_worker_everything() -> None:
    dataset = _with_policy(Dataset.range(8).batch(4), AutoShardPolicy.OFF)
    for worker in (0, 1):
        assert _read(dataset, worker, 2) == [(4, [0, 1]), (4, [2, 3]), (4, [4, 5]), (4, [6, 7])]


def test_policy_hint_gives_each_worker_its_shard() -> None:
    dataset = _with_policy(Dataset.range(8).shard(SHARD_HINT, SHARD_HINT).batch(4), AutoShardPolicy.HINT)
    assert _read(dataset, 0, 2) == [(4, [0, 2]), (4, [4, 6])]
    assert _read(dataset, 1, 2) == [(4, [1, 3]), (4, [5, 7])]


def test_class_weight_becomes_sample_weight() -> None:
    x, y = np.arange(6, dtype="float32")[:, None], np.array([0, 1, 2, 0, 1, 2])
    dataset = Dataset.from_tensor_slices((x, y)).batch(3)
    source = DatasetSource(dataset, OtherWorker(0, 1), {0: 1.0, 1: 0.5, 2: 4.0})  # pyright: ignore[reportArgumentType]
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
