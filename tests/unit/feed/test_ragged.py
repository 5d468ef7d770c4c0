"""Ragged and sparse tensors shared out to replicas, and computed with on each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem import keras
from stratagem.core.errors import InputError
from stratagem.data import Dataset


def of_three_kinds(rows: int = 20) -> Dataset:
    lengths = np.arange(rows) % 4
    ragged = tf.RaggedTensor.from_row_lengths(np.repeat(np.arange(rows, dtype=np.float32), lengths), lengths)
    dense = ragged.to_tensor()
    return Dataset.from_tensor_slices({"dense": dense, "ragged": ragged, "sparse": tf.sparse.from_dense(dense)})


def sums(batch: Any) -> dict[str, Any]:
    return {
        "dense": tf.reduce_sum(batch["dense"]),
        "ragged": tf.reduce_sum(batch["ragged"]),
        "sparse": tf.reduce_sum(batch["sparse"].values),
    }


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_rows_are_split_as_dense_ones(replicas: int) -> None:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    total = dict.fromkeys(("dense", "ragged", "sparse"), 0.0)
    for batch in strategy.experimental_distribute_dataset(of_three_kinds().batch(8)):
        for of_replica in strategy.experimental_local_results(batch):
            np.testing.assert_array_equal(of_replica["ragged"].to_tensor(shape=[None, 3]), of_replica["dense"])
            np.testing.assert_array_equal(tf.sparse.to_dense(of_replica["sparse"]), of_replica["dense"])
        found = strategy.run(sums, args=(batch,))
        total = {name: value + float(strategy.reduce("SUM", found[name], axis=None)) for name, value in total.items()}
    assert total == {"dense": 310.0, "ragged": 310.0, "sparse": 310.0}


def test_what_a_replica_returns() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    (batch,) = strategy.experimental_distribute_dataset(of_three_kinds(3).batch(3))
    made = strategy.run(lambda batch: (batch["ragged"] + 1, tf.reduce_sum(batch["ragged"], axis=1)), args=(batch,))
    ragged, of_rows = zip(*strategy.experimental_local_results(made), strict=True)
    assert [each.to_list() for each in ragged] == [[[], [2.0]], [[3.0, 3.0]]]
    assert [each.tolist() for each in of_rows] == [[0.0, 1.0], [4.0]]
    whole = strategy.gather(made[1], axis=0)
    assert whole.tolist() == [0.0, 1.0, 4.0]


def test_a_replica_without_rows_has_none() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    dataset = strategy.distribute_datasets_from_function(lambda context: of_three_kinds(6).batch(2))
    batches = list(dataset)
    counts = [[len(part["ragged"]) for part in strategy.experimental_local_results(batch)] for batch in batches]
    assert counts == [[2, 2], [2, 0]]
    found = [strategy.run(sums, args=(batch,)) for batch in batches]
    assert [float(strategy.reduce("SUM", each["ragged"], axis=None)) for each in found] == [1 + 4 + 9, 5]


def test_lengths_are_not_known_in_a_compiled_step() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    (batch,) = strategy.experimental_distribute_dataset(of_three_kinds(4).batch(4))
    with pytest.raises(InputError, match=r"to_tensor\(shape=\[None, width\]\)"):
        strategy.run(lambda batch: batch["ragged"].to_tensor(), args=(batch,))
    made = strategy.run(lambda batch: batch["ragged"].to_tensor(shape=[None, 2]), args=(batch,))
    assert strategy.gather(made, axis=0).tolist() == [[0, 0], [1, 0], [2, 2], [3, 3]]


def test_fit_asks_for_dense_rows() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    dataset = of_three_kinds(4).map(lambda row: (row["ragged"], 1.0)).ragged_batch(2)
    with pytest.raises(InputError, match="ragged or sparse tensor"):
        model.fit(dataset, verbose=0)


def test_replicas_with_rows_of_other_shapes() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    narrow, wide = Dataset.from_tensors([[1.0, 2.0]] * 2), Dataset.from_tensors([[1.0, 2.0, 3.0]] * 2)
    (batch,) = strategy.distribute_datasets_from_function(lambda _: narrow.concatenate(wide))
    means = strategy.run(tf.reduce_mean, args=(batch,))
    assert [float(mean) for mean in strategy.experimental_local_results(means)] == [1.5, 2.0]


def test_sparse_values_of_each_replica() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])

    def value_fn(context: Any) -> Any:
        return tf.sparse.SparseTensor([[0, 0], [1, 2]], [1, context.replica_id_in_sync_group], [2, 3])

    made = strategy.experimental_distribute_values_from_function(value_fn)
    dense = [tf.sparse.to_dense(part).tolist() for part in strategy.experimental_local_results(made)]
    assert dense == [[[1, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 1]]]
