"""Arrays of a batch: on the devices, those of several steps as one, and counted, weighed and made dense before."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError
from stratagem.data import Dataset, TensorSpec
from stratagem.feed.adapter import make_adapter
from stratagem.feed.batch import (
    GlobalBatch,
    as_numpy,
    batch_spec_of,
    count_rows,
    example_of,
    no_rows,
    place_batch,
    place_together,
    valid_rows,
    weighing,
)
from stratagem.mesh.split import Split

ROWS = np.arange(48, dtype=np.float32).reshape(24, 2)


def _taken(strategy: stratagem.Strategy, count: int, **arguments: object) -> list[GlobalBatch]:
    batches = make_adapter(strategy, {"x": ROWS, "batch_size": 4, **arguments}).get_jax_iterator()
    return [batch for _ in range(2) for batch in batches.take(count)]


def test_rows_that_lie_side_by_side_are_not_copied() -> None:
    (first, last) = _taken(stratagem.OneDeviceStrategy("cpu:0"), 3)
    assert (first.steps, last.steps) == (3, 3)
    np.testing.assert_array_equal(np.concatenate([first.data, last.data]), ROWS.reshape(6, 4, 2))
    assert np.shares_memory(first.data, ROWS)
    assert not first.data.flags.writeable


def test_shuffled_rows_are_copied_each_once() -> None:
    batches = _taken(stratagem.OneDeviceStrategy("cpu:0"), 3, shuffle=True)
    rows = np.concatenate([batch.data for batch in batches]).reshape(-1, 2)
    assert not np.array_equal(rows, ROWS)
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], ROWS)
    assert not np.shares_memory(rows, ROWS)


def test_rows_that_lie_side_by_side_in_another_order_are_copied() -> None:
    memory = np.arange(8, dtype=np.float32)
    parts = [memory[:4].reshape(2, 2), memory[4:].reshape(2, 2).T]
    batch = place_together(stratagem.OneDeviceStrategy("cpu:0").mesh, [Split(2, 1)] * 2, parts)
    assert batch is not None
    np.testing.assert_array_equal(batch.data, [[[0, 1], [2, 3]], [[4, 6], [5, 7]]])


def test_each_replica_gets_its_rows_of_each_step() -> None:
    (batch, _) = _taken(stratagem.MirroredStrategy(["cpu:0", "cpu:1"]), 3)
    parts = [np.asarray(shard.data) for shard in batch.data.addressable_shards]
    np.testing.assert_array_equal(parts[0], ROWS.reshape(6, 2, 2, 2)[:3, 0])
    np.testing.assert_array_equal(parts[1], ROWS.reshape(6, 2, 2, 2)[:3, 1])


@pytest.mark.parametrize("count", [4, 6])
def test_an_incomplete_or_uneven_set_is_taken_one_by_one(count: int) -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    batches = make_adapter(strategy, {"x": ROWS[:19], "batch_size": 4}).get_jax_iterator().take(count)
    expected = {4: [(4, 16)], 6: [(1, 4), (1, 4), (1, 4), (1, 4), (1, 3)]}[count]
    assert [(batch.steps, batch.steps * batch.split.rows) for batch in batches] == expected


def test_batches_of_different_widths_train_one_by_one() -> None:
    """Text padded batch by batch: stacked in one program they failed with JAX's "must have the same shape"."""

    def examples() -> Iterator[tuple[np.ndarray, np.float32]]:
        for width in (3, 3, 5, 5, 2, 2, 4, 4):
            yield np.full((width, 2), width, np.float32), np.float32(width)

    signature = (TensorSpec((None, 2), "float32"), TensorSpec((), "float32"))

    def trained(steps_per_execution: int) -> list[np.ndarray]:
        dataset = Dataset.from_generator(examples, output_signature=signature).batch(2)
        with stratagem.OneDeviceStrategy("cpu:0").scope():
            layers = [keras.Input((None, 2)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1, "linear")]
            model = keras.Sequential(layers)
            model.layers[-1].set_weights([np.full((2, 1), 0.25, np.float32), np.zeros(1, np.float32)])
            model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=steps_per_execution)
        model.fit(dataset, steps_per_epoch=4, verbose=0)
        return model.get_weights()

    for together, alone in zip(trained(2), trained(1), strict=True):
        np.testing.assert_array_equal(together, alone)
        assert np.all(together != 0.25)


def test_rows_of_uneven_shares_lie_first_in_blocks_of_equal_size() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    split = Split(3, 2)
    batch = place_batch(strategy.mesh, split, {"x": np.arange(3)})
    assert np.asarray(batch.data["x"]).tolist() == [0, 1, 2, 2]
    assert valid_rows(split).tolist() == [0, 1, 2]
    assert valid_rows(Split.of((1, 3))).tolist() == [0, 3, 4, 5]


def test_rows_are_counted_where_all_arrays_agree() -> None:
    assert count_rows((np.zeros((3, 2)), None, {"y": np.zeros(3)})) == 3
    with pytest.raises(InputError, match=r"shapes \[\(\)\] was given: not every array has a batch dimension"):
        count_rows(np.float32(1))
    with pytest.raises(InputError, match=r"shapes \[\(3,\), \(2,\)\]: their first dimensions differ"):
        count_rows((np.zeros(3), np.zeros(2)))


def test_examples_and_specs_of_a_batch() -> None:
    specs = (TensorSpec((None, 2, None), "float32"), TensorSpec(None, "int8"))
    long, scalar = example_of(specs, rows=4)
    assert (long.shape, scalar.shape, scalar.dtype) == ((4, 2, 1), (), np.int8)
    assert batch_spec_of(long) == TensorSpec((None, 2, 1), "float32")
    empty = no_rows(long)
    assert (empty.shape, empty.dtype) == ((0, 2, 1), np.float32)


def test_weights_of_classes_are_multiplied_into_those_of_rows() -> None:
    x, y = np.zeros((3, 1)), np.array([0, 1, 1])
    weigh = weighing({0: 1.0, 1: 0.5})
    assert weigh((x, y))[2].tolist() == [1, 0.5, 0.5]
    assert weigh((x, y, np.array([2, 2, 4])))[2].tolist() == [2, 1, 2]
    assert weighing(None)(x) is x


def test_arrays_of_any_library_become_numpy() -> None:
    class Sparse:
        def toarray(self) -> np.ndarray:
            return np.eye(2)

    found = as_numpy({"jax": jnp.arange(2), "sparse": Sparse(), "none": None, "list": [1.5]})
    assert (found["jax"].tolist(), found["sparse"].tolist(), found["none"]) == ([0, 1], [[1, 0], [0, 1]], None)
    assert found["list"][0] == 1.5
