"""Distributed datasets on two workers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def _strategy() -> Any:
    import stratagem

    return stratagem.MultiWorkerMirroredStrategy()


def _rows(strategy: Any, element: Any) -> list[list[float]]:
    return [component.tolist() for component in strategy.experimental_local_results(element)]


def shared_batches() -> dict[str, Any]:
    import stratagem
    from stratagem.data import Dataset, Options

    strategy = _strategy()
    options = Options()
    options.reader_processes = 1
    worker = os.getpid()
    elsewhere = Dataset.range(7).map(lambda i: i if os.getpid() != worker else -1).batch(4).with_options(options)
    in_processes = strategy.experimental_distribute_dataset(elsewhere)
    plain = strategy.experimental_distribute_dataset(Dataset.range(7).batch(4))
    shuffled = strategy.experimental_distribute_dataset(Dataset.range(10).shuffle(10).batch(4))
    orders = [
        [int(row) for element in shuffled for row in np.asarray(strategy.gather(element, axis=0))] for _ in range(2)
    ]
    iterator = iter(shuffled)
    next(iterator)
    state = iterator.get_state()
    rest = [_rows(strategy, element) for element in iterator]
    iterator.set_state(state)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: np.full(context.replica_id_in_sync_group, 1.5)
    )
    scaled = strategy.run(stratagem.nn.compute_average_loss, args=(next(iter(plain)),))
    totals: list[int] = []

    @stratagem.function
    def until_the_end(iterator: Any) -> None:
        while (element := iterator.get_next_as_optional()).has_value():
            total = strategy.run(lambda x: x.sum(), args=(element.get_value(),))
            totals.append(int(strategy.reduce("SUM", total, axis=None)))

    @stratagem.function
    def steps(iterator: Any, count: int) -> int:
        return sum(int(strategy.reduce("SUM", next(iterator), axis=0)) for _ in range(count))

    until_the_end(iter(plain))
    endless = iter(strategy.experimental_distribute_dataset(Dataset.range(7).repeat().batch(4)))
    return {
        "totals": totals,
        "endless": [steps(endless, 7), steps(endless, 3)],
        "plain": [_rows(strategy, element) for element in plain],
        "in processes": [[_rows(strategy, element) for element in in_processes] for _ in range(2)],
        "orders": orders,
        "state": state,
        "restored": [_rows(strategy, element) for element in iterator] == rest,
        "values": _rows(strategy, values),
        "sum": float(strategy.reduce("SUM", values, axis=0)),
        "mean": float(strategy.reduce("SUM", scaled, axis=None)),
    }


def test_workers_share_one_global_dataset() -> None:
    first, second = (result.value for result in run_workers(shared_batches, 2, devices_per_worker=2))
    assert first["totals"] == second["totals"] == [6, 15]
    # 0 ... 6 again and again, 28 rows and then 12: four repetitions; then one and the rows 0 ... 4.
    assert first["endless"] == second["endless"] == [84, 31]
    assert first["plain"] == [[[0], [1]], [[4], [5]]]
    assert second["plain"] == [[[2], [3]], [[6], []]]
    assert first["in processes"] == [first["plain"]] * 2
    assert second["in processes"] == [second["plain"]] * 2
    assert first["orders"] == second["orders"]
    assert [sorted(order) for order in first["orders"]] == [list(range(10))] * 2
    assert first["orders"][0] != first["orders"][1]
    assert first["state"] == second["state"]
    assert first["restored"]
    assert second["restored"]
    assert (first["values"], second["values"]) == ([[], [1.5]], [[1.5, 1.5], [1.5, 1.5, 1.5]])
    assert first["sum"] == second["sum"] == 9.0
    assert first["mean"] == second["mean"] == 1.5


def own_streams() -> dict[str, Any]:
    from stratagem.data import AutoShardPolicy, Dataset, Options
    from stratagem.data.experimental import SHARD_HINT

    strategy = _strategy()
    contexts = []

    def dataset_fn(context: Any) -> Any:
        contexts.append((context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync))
        dataset = Dataset.range(7 if context.input_pipeline_id == 0 else 3)
        return dataset.map(lambda x: x + 10 * context.input_pipeline_id).batch(2)

    distributed = strategy.distribute_datasets_from_function(dataset_fn)
    iterator = iter(distributed)
    next(iterator)
    state = iterator.get_state()
    next(iterator)
    iterator.set_state(state)
    sharded = strategy.distribute_datasets_from_function(
        lambda context: (
            Dataset.range(8).shuffle(8).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)
        )
    )
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.HINT
    hinted = Dataset.range(5).shard(SHARD_HINT, SHARD_HINT).batch(6).with_options(options)
    return {
        "contexts": contexts,
        "steps": [_rows(strategy, element) for element in distributed],
        "sums": [float(strategy.reduce("SUM", element, axis=0)) for element in distributed],
        "length": len(distributed),
        "after state": _rows(strategy, next(iterator)),
        "state": state,
        "sharded": [row for element in sharded for own in _rows(strategy, element) for row in own],
        "hinted": [_rows(strategy, element) for element in strategy.experimental_distribute_dataset(hinted)],
    }


def test_each_worker_reads_its_own_stream() -> None:
    first, second = (result.value for result in run_workers(own_streams, 2, devices_per_worker=2))
    assert first["contexts"] == [(2, 0, 4)]
    assert second["contexts"] == [(2, 1, 4)]
    # Worker 0 has batches [0 1] [2 3] [4 5] [6], worker 1 [10 11] [12]; it goes on without rows.
    assert first["steps"] == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    assert second["steps"] == [[[10, 11], [12]], [[], []]]
    assert first["sums"] == second["sums"] == [6 + 33, 15]
    assert first["length"] == second["length"] == 2
    assert first["after state"] == first["steps"][1]
    assert second["after state"] == second["steps"][1]
    assert sorted(first["sharded"] + second["sharded"]) == list(range(8))
    # Worker 0 reads 0 2 4, a piece at each of two steps: [0 2], then [4]; worker 1 reads 1 3.
    assert first["hinted"] == [[[0], [2]], [[4], []]]
    assert second["hinted"] == [[[1], []], [[3], []]]


def different_lengths() -> None:
    from stratagem.data import Dataset

    _strategy().experimental_distribute_dataset(Dataset.range(8 + 8 * _worker()).batch(4))


def different_shapes() -> None:
    from stratagem.data import Dataset

    dataset = Dataset.from_tensor_slices(np.zeros((4, 2 + _worker()), "float32")).batch(2)
    _strategy().distribute_datasets_from_function(lambda _: dataset)


def _worker() -> int:
    import json

    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


@pytest.mark.parametrize(("program", "found"), [(different_lengths, "batches"), (different_shapes, "component 0")])
def test_different_datasets_are_named(program: Any, found: str) -> None:
    with pytest.raises(PeerError, match=found):
        run_workers(program, 2)


def unlike_shapes() -> dict[str, Any]:
    import jax.numpy as jnp

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()

    def value_of(context: Any) -> Any:
        replica = context.replica_id_in_sync_group
        return np.full((1, replica + 1), replica, np.float32)

    def step(x: Any) -> Any:
        context: Any = stratagem.get_replica_context()
        total = context.all_reduce("SUM", jnp.sum(x * 2))
        return x * 2, context.all_gather(x, axis=1), total

    value = strategy.experimental_distribute_values_from_function(value_of)
    doubled, gathered, total = strategy.run(step, args=(value,))
    with pytest.raises(ValueError, match="Shape mismatch") as error:
        strategy.gather(value, axis=0)
    assert "shapes (1, 1) and (1, 2)" in str(error.value)
    return {
        "outside": strategy.gather(doubled, axis=1).tolist(),
        "inside": [part.tolist() for part in strategy.experimental_local_results(gathered)],
        "own": [part.shape for part in strategy.experimental_local_results(doubled)],
        "total": [float(part) for part in strategy.experimental_local_results(total)],
        "sum": strategy.reduce("SUM", value, axis=1).tolist(),
    }


@pytest.mark.parametrize("devices", [1, 2])
def test_unlike_shapes(devices: int) -> None:
    """Each replica holds as many numbers as its id and one, each its id. One device each: through memory."""
    workers = [result.value for result in run_workers(unlike_shapes, 2, devices_per_worker=devices)]
    ids = [replica for replica in range(2 * devices) for _ in range(replica + 1)]
    assert [shape for worker in workers for shape in worker["own"]] == [(1, n + 1) for n in range(2 * devices)]
    for worker in workers:
        assert worker["outside"] == [[2 * number for number in ids]]
        assert worker["inside"] == [[ids]] * devices
        assert worker["total"] == [2 * sum(ids)] * devices
        assert worker["sum"] == [sum(ids)]


def ragged_rows() -> list[Any]:
    import stratagem.tf as tf
    from stratagem.data import Dataset

    strategy = _strategy()
    lengths = np.arange(7) % 4
    ragged = tf.RaggedTensor.from_row_lengths(np.repeat(np.arange(7.0), lengths), lengths)
    dataset = Dataset.from_tensor_slices({"ragged": ragged, "sparse": ragged.to_sparse()}).batch(4)
    found = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        local = strategy.experimental_local_results(batch["ragged"])
        sums = [strategy.run(tf.reduce_sum, args=(values,)) for values in (batch["ragged"], batch["sparse"].values)]
        totals = [float(strategy.reduce("SUM", each, axis=None)) for each in sums]
        found.append(([part.to_list() for part in local], totals))
    return found


def test_ragged_rows_are_shared() -> None:
    """Each worker's part has other sizes, of which the workers tell each other."""
    first, second = (result.value for result in run_workers(ragged_rows, 2))
    assert first == [([[[], [1.0]]], [14.0, 14.0]), ([[[], [5.0]]], [17.0, 17.0])]
    assert second == [([[[2.0, 2.0], [3.0, 3.0, 3.0]]], [14.0, 14.0]), ([[[6.0, 6.0]]], [17.0, 17.0])]
