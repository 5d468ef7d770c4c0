"""Elements of distributed datasets against numbers written by hand."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError, OutOfRangeError, UnsupportedError, UsageError
from stratagem.data import AutoShardPolicy, Dataset, Options, TensorSpec
from stratagem.data.experimental import SHARD_HINT
from stratagem.feed import distributed
from stratagem.mesh.worker_counts import Layout


def mirrored(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def rows(value: Any) -> list[list[float]]:
    """Return the rows of each replica."""
    return [component.tolist() for component in stratagem.get_strategy().experimental_local_results(value)]


def flat(lists: list[list[float]]) -> list[float]:
    return [row for rows_of_one in lists for row in rows_of_one]


@pytest.mark.parametrize(
    ("replicas", "count", "batch", "expected"),
    [
        (2, 8, 4, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
        (2, 7, 4, [[[0, 1], [2, 3]], [[4, 5], [6]]]),
        (3, 7, 7, [[[0, 1, 2], [3, 4], [5, 6]]]),
        (4, 6, 4, [[[0], [1], [2], [3]], [[4], [5], [], []]]),
        (1, 3, 2, [[[0, 1]], [[2]]]),
        (2, 0, 4, []),
    ],
)
def test_shares_of_each_batch(replicas: int, count: int, batch: int, expected: list[Any]) -> None:
    strategy = mirrored(replicas)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(count).batch(batch))
    for _ in range(2):  # every pass begins anew
        assert [rows(element) for element in distributed] == expected
    assert len(distributed) == distributed.cardinality() == len(expected)


def test_structure_and_layout() -> None:
    strategy = mirrored(2)
    x, y = np.arange(10.0, dtype="float32").reshape(5, 2), np.arange(5)
    dataset = Dataset.from_tensor_slices(({"x": x}, y)).batch(5)
    distributed = strategy.experimental_distribute_dataset(dataset)
    (element,) = distributed
    assert isinstance(element[0]["x"], stratagem.PerReplica)
    assert element[0]["x"].stacked.shape == (2, 3, 2)
    assert element[0]["x"].shares == element[1].shares == (3, 2)
    np.testing.assert_array_equal(strategy.gather(element[0]["x"], axis=0), x)
    assert float(strategy.reduce("SUM", element[1], axis=0)) == 10
    assert float(strategy.reduce("MEAN", element[1], axis=0)) == 2
    # JAX holds integers of 32 bits.
    assert distributed.element_spec == ({"x": TensorSpec((None, 2), "float32")}, TensorSpec((None,), "int32"))
    assert iter(distributed).element_spec == distributed.element_spec
    even = next(iter(strategy.experimental_distribute_dataset(dataset.unbatch().batch(4))))
    assert even[1].shares is None
    assert even[1].stacked.shape == (2, 2)


def test_one_replica_gets_arrays() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:1")
    element = next(iter(strategy.experimental_distribute_dataset(Dataset.range(3).batch(3))))
    assert element.devices() == {strategy.mesh.devices[0]}
    assert element.tolist() == [0, 1, 2]


def _orders(replicas: int, epochs: int) -> list[list[float]]:
    strategy = mirrored(replicas)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(10).shuffle(10, seed=3).batch(4))
    return [
        [float(row) for element in distributed for row in np.asarray(strategy.gather(element, axis=0))]
        for _ in range(epochs)
    ]


def test_epochs_reshuffle_alike_on_any_number_of_replicas() -> None:
    orders = _orders(1, 3)
    assert sorted(orders[0]) == list(range(10))
    assert orders[0] != orders[1] != orders[2]
    assert _orders(2, 3) == _orders(3, 3) == orders


def test_state_restores_on_another_number_of_replicas() -> None:
    def dataset() -> Dataset:
        return Dataset.range(10).shuffle(10, seed=3).batch(3)

    first = mirrored(2).experimental_distribute_dataset(dataset())
    list(first)
    iterator = iter(first)  # the second pass
    next(iterator)
    state = iterator.get_state()
    assert (state["iteration"], state["batches"]) == (1, 1)
    expected = [flat(rows(element)) for element in iterator]
    then = [flat(rows(element)) for element in first]

    second = mirrored(3).experimental_distribute_dataset(dataset())
    restored = iter(second)
    restored.set_state(state)
    assert [flat(rows(element)) for element in restored] == expected
    assert [flat(rows(element)) for element in second] == then  # later passes follow too


def test_end_of_data() -> None:
    iterator = iter(mirrored(2).experimental_distribute_dataset(Dataset.range(2).batch(2)))
    assert rows(iterator.get_next()) == [[0], [1]]
    with pytest.raises(OutOfRangeError, match="begin again"):
        iterator.get_next()
    with pytest.raises(StopIteration):
        next(iterator)
    optional = iterator.get_next_as_optional()
    assert optional.has_value() is False
    assert optional.element_spec == iterator.element_spec
    for kind in (stratagem.errors.OutOfRangeError, InputError):  # the second is TensorFlow's InvalidArgumentError
        with pytest.raises(kind, match="no more elements"):
            optional.get_value()
    assert not issubclass(OutOfRangeError, StopIteration)


def test_closed_iterator_ends() -> None:
    iterator = iter(mirrored(2).experimental_distribute_dataset(Dataset.range(100).repeat().batch(2)))
    next(iterator)
    iterator.close()
    assert next(iterator, None) is None


class Squares(keras.utils.PyDataset):
    """Two batches; counts the ends of epochs."""

    ends = 0

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.arange(3.0) + 3 * index
        return x, x**2

    def on_epoch_end(self) -> None:
        self.ends += 1


def test_other_inputs() -> None:
    strategy = mirrored(2)
    data = Squares()
    distributed = strategy.experimental_distribute_dataset(data)
    for epoch in (1, 2):
        assert [rows(y) for _, y in distributed] == [[[0, 1], [4]], [[9, 16], [25]]]
        assert data.ends == epoch
    iterator = iter(distributed)
    next(iterator)
    state = iterator.get_state()
    again = iter(mirrored(3).experimental_distribute_dataset(Squares()))
    again.set_state(state)
    assert [rows(y) for _, y in again] == [[[9], [16], [25]]]

    def generator() -> Iterator[np.ndarray]:
        yield np.arange(3)
        yield np.arange(2)

    once = strategy.experimental_distribute_dataset(generator())
    assert once.cardinality() == -2
    assert [rows(element) for element in once] == [[[0, 1], [2]], [[0], [1]]]
    with pytest.raises(UsageError, match="used up"):
        list(once)


def test_fit_with_a_pydataset_for_two_epochs() -> None:
    data = Squares()
    with mirrored(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    model.fit(data, epochs=2, verbose=0)
    assert data.ends == 3  # as Keras 3 does: before the first epoch too


@pytest.mark.parametrize("count", [5, 6])
def test_function_form_gives_each_replica_a_batch(count: int) -> None:
    strategy = mirrored(2)
    contexts = []

    def dataset_fn(context: stratagem.InputContext) -> Dataset:
        contexts.append(context)
        return Dataset.range(count).batch(context.get_per_replica_batch_size(4))

    distributed = strategy.distribute_datasets_from_function(dataset_fn)
    assert contexts == [stratagem.InputContext(1, 0, 2)]
    last = [[4], []] if count == 5 else [[4, 5], []]
    for _ in range(2):
        assert [rows(element) for element in distributed] == [[[0, 1], [2, 3]], last]
    assert len(distributed) == 2
    iterator = iter(distributed)
    next(iterator)
    again = iter(distributed)
    again.set_state(iterator.get_state())
    assert rows(next(again)) == last


def test_function_form_per_replica() -> None:
    options = stratagem.InputOptions(
        experimental_replication_mode=stratagem.InputReplicationMode.PER_REPLICA,
        experimental_per_replica_buffer_size=0,
    )
    distributed = mirrored(2).distribute_datasets_from_function(
        lambda context: Dataset.range(10 * context.input_pipeline_id, 10 * context.input_pipeline_id + 3).batch(2),
        options,
    )
    assert [rows(element) for element in distributed] == [[[0, 1], [10, 11]], [[2], [12]]]
    with pytest.raises(InputError, match="distribute_datasets_from_function"):
        mirrored(2).experimental_distribute_dataset(Dataset.range(2).batch(2), options)


def test_elements_that_are_not_batched_go_to_one_replica_each() -> None:
    """As in TensorFlow 2.21: each replica gets the next element, and none a part of the last ones."""
    strategy = mirrored(2)
    numbers = strategy.distribute_datasets_from_function(lambda context: Dataset.range(5))
    assert numbers.element_spec.shape == ()
    found = [strategy.experimental_local_results(element) for element in numbers]
    assert [[int(part) for part in parts] for parts in found] == [[0, 1], [2, 3]]
    assert {part.shape for parts in found for part in parts} == {()}
    sums = [strategy.reduce("SUM", strategy.run(lambda v: v + 1, (element,)), axis=None) for element in numbers]
    assert [int(each) for each in sums] == [3, 7]
    pairs = Dataset.from_tensor_slices((np.arange(6.0).reshape(3, 2), ["a", "b", "c"]))
    [(vectors, texts)] = list(strategy.distribute_datasets_from_function(lambda context: pairs))
    assert [part.tolist() for part in strategy.experimental_local_results(vectors)] == [[0.0, 1.0], [2.0, 3.0]]
    assert [part.tolist() for part in strategy.experimental_local_results(texts)] == [b"a", b"b"]


def test_one_replica_gets_elements_that_are_not_batched() -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    shared = strategy.experimental_distribute_dataset(Dataset.range(3))
    own = strategy.distribute_datasets_from_function(lambda context: Dataset.from_tensor_slices(["a", "b"]))
    assert shared.element_spec.shape == own.element_spec.shape == ()
    assert [element.tolist() for element in shared] == [0, 1, 2]
    assert [element.tolist() for element in own] == [b"a", b"b"]


def test_deprecated_name() -> None:
    with pytest.warns(DeprecationWarning, match="is now strategy.distribute_datasets_from_function"):
        distributed = mirrored(2).experimental_distribute_datasets_from_function(lambda _: Dataset.range(2).batch(1))
    assert [rows(element) for element in distributed] == [[[0], [1]]]


def test_hinted_shards_on_one_worker() -> None:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.HINT
    dataset = Dataset.range(3).shard(SHARD_HINT, SHARD_HINT).batch(2).with_options(options)
    assert [rows(e) for e in mirrored(2).experimental_distribute_dataset(dataset)] == [[[0], [1]], [[2], []]]


def test_values_from_function() -> None:
    strategy = mirrored(3)

    def value_fn(context: Any) -> dict[str, Any]:
        replica = context.replica_id_in_sync_group
        return {"scalar": replica * 10, "rows": np.full(replica, 7), "of": context.num_replicas_in_sync}

    value = strategy.experimental_distribute_values_from_function(value_fn)
    assert strategy.experimental_local_results(value["scalar"]) == (0, 10, 20)
    assert rows(value["rows"]) == [[], [7], [7, 7]]
    assert strategy.experimental_local_results(value["of"]) == (3, 3, 3)
    with pytest.raises(InputError, match="have one dtype"):
        strategy.experimental_distribute_values_from_function(lambda c: [1, 2.0, 3][c.replica_id_in_sync_group])
    with pytest.raises(InputError, match="same structure"):
        strategy.experimental_distribute_values_from_function(lambda c: (1,) * c.replica_id_in_sync_group)


@pytest.mark.parametrize("method", ["map", "batch", "take", "shuffle"])
def test_no_more_transformations(method: str) -> None:
    distributed = mirrored(2).experimental_distribute_dataset(Dataset.range(4).batch(2))
    with pytest.raises(UsageError, match=rf"Call {method}\(\) on the dataset first"):
        getattr(distributed, method)
    assert not hasattr(distributed, method)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = distributed.nonsense


@pytest.mark.parametrize("dataset", [np.zeros((4, 2)), [1, 2], {"x": np.zeros(3)}, (np.zeros(3), np.zeros(3))])
def test_arrays_are_no_datasets(dataset: Any) -> None:
    with pytest.raises(InputError, match=r"from_tensor_slices\(arrays\)\.batch"):
        mirrored(2).experimental_distribute_dataset(dataset)


def test_misuse_is_explained() -> None:
    strategy = mirrored(2)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
    with pytest.raises(InputError, match="distributed already"):
        strategy.experimental_distribute_dataset(distributed)
    with pytest.raises(InputError, match="batch dimension"):
        next(iter(strategy.experimental_distribute_dataset(Dataset.range(4))))
    days = np.array(["2026-11-22", "2026-11-23"], "datetime64[D]")
    with pytest.raises(InputError, match="Turn it into numbers"):
        next(iter(strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(days).batch(2))))
    with pytest.raises(TypeError, match="has no end"):
        len(strategy.experimental_distribute_dataset(Dataset.range(4).repeat().batch(2)))
    with pytest.raises(InputError, match="get_state returned"):
        iter(distributed).set_state({"step": 1})
    with pytest.raises(InputError, match="read ahead"):
        stratagem.InputOptions(experimental_per_replica_buffer_size=-1)


def test_reduce_over_a_pass() -> None:
    strategy = mirrored(2)
    distributed = strategy.experimental_distribute_dataset(Dataset.range(5).batch(2))
    assert distributed.reduce(0, lambda total, e: total + int(strategy.reduce("SUM", e, axis=0))) == 10


@pytest.mark.parametrize("replicas", [1, 2])
def test_text_stays_on_the_host(replicas: int) -> None:
    strategy = mirrored(replicas)
    dataset = Dataset.from_tensor_slices((["a", "b", "c", "d", "e"], np.arange(5.0, dtype=np.float32))).batch(3)
    distributed = strategy.experimental_distribute_dataset(dataset)
    assert distributed.element_spec[0].dtype == object
    found = []
    for texts, numbers in distributed:
        found.append([part.tolist() for part in strategy.experimental_local_results(texts)])
        assert strategy.reduce("SUM", numbers, axis=0) == sum(ord(text) - 97 for part in found[-1] for text in part)
        for use in (
            lambda: strategy.run(lambda t, n: n, (texts, numbers)),  # noqa: B023
            lambda: strategy.reduce("SUM", texts, axis=0),  # noqa: B023
        ):
            with pytest.raises(InputError, match="no device holds text"):
                use()
    expected = [[[b"a", b"b"], [b"c"]], [[b"d"], [b"e"]]]
    assert found == (expected if replicas == 2 else [[flat(parts)] for parts in expected])


def test_components_name_their_devices() -> None:
    strategy = mirrored(2)
    (element,) = strategy.experimental_distribute_dataset(Dataset.range(4).batch(4))
    for value in (element, strategy.run(lambda x: x + 1, args=(element,))):
        parts = strategy.experimental_local_results(value)
        assert tuple(part.backing_device for part in parts) == strategy.extended.worker_devices
        assert tuple(part.device for part in parts) == strategy.extended.worker_devices


def test_an_iterator_goes_on_where_the_number_of_workers_is_another() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    dataset = Dataset.range(12).shuffle(12, seed=3).batch(2)
    expected, second = [[batch.tolist() for batch in dataset] for _ in range(2)]
    distributed = strategy.experimental_distribute_dataset(Dataset.range(12).shuffle(12, seed=3).batch(2))
    iterator = iter(distributed)
    source = distributed.source
    assert [flat(rows(next(iterator))) for _ in range(2)] == expected[:2]
    state = iterator.get_state()
    assert iterator.fits_other_workers
    strategy.layout = Layout(3, 0)  # as after a change; reading does not ask the others
    strategy.mesh.local_rows = lambda rows: slice(0, rows)  # type: ignore[method-assign]
    iterator.set_state(state)
    assert distributed.source is not source
    assert [flat(rows(batch)) for batch in iterator] == expected[2:]
    strategy.layout = Layout(2, 0)
    assert [flat(rows(batch)) for batch in distributed] == second


def test_a_pass_after_a_place_that_was_set_is_the_next_one() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    dataset = Dataset.range(12).shuffle(12, seed=3).batch(4)
    passes = [[batch.tolist() for batch in dataset] for _ in range(4)]
    distributed = strategy.experimental_distribute_dataset(Dataset.range(12).shuffle(12, seed=3).batch(4))
    iterator = iter(distributed)
    state = iterator.get_state()
    distributed.source.resume(distributed.source.position())  # of a later pass, which nobody began
    iterator.set_state(state)
    assert [flat(rows(batch)) for batch in iterator] == passes[0]
    assert [flat(rows(batch)) for batch in distributed] == passes[1]


def test_what_only_its_workers_can_read_is_refused_to_others() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    own = strategy.distribute_datasets_from_function(lambda context: Dataset.range(8).batch(2))
    whole = strategy.experimental_distribute_dataset(iter([np.zeros(2)]))
    for each in (own, whole):
        iterator = iter(each)
        assert not iterator.fits_other_workers
        strategy.layout = Layout(2, 0)
        with pytest.raises(UnsupportedError, match="The number of workers has changed, and a distributed dataset was"):
            iterator.set_state(iterator.get_state())
        strategy.layout = Layout(1, 0)


def test_passes_begin_where_those_of_another_worker_do(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    monkeypatch.setattr(strategy.mesh, "world", SimpleNamespace(keeps_rows_of_workers=False))

    def made() -> list[Any]:
        monkeypatch.setattr(distributed, "_lasting", {})
        monkeypatch.setattr(distributed, "_numbers", itertools.count())
        shuffled = [Dataset.range(8).shuffle(8).batch(4) for _ in range(2)]  # in an order of its own
        return [strategy.experimental_distribute_dataset(dataset) for dataset in shuffled]

    _first, second = made()
    for _ in range(3):
        list(second)
    places = distributed.next_passes()
    assert [place["iteration"] for place in places.values()] == [0, 3]
    expected = [flat(rows(batch)) for batch in second]
    _first, second = made()
    distributed.begin_passes({**places, 7: places[0]})  # another one, which a loop makes there
    assert [flat(rows(batch)) for batch in second] == expected
    del _first
    gc.collect()
    assert list(distributed.next_passes()) == [1]
