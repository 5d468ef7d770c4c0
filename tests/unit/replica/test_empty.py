"""A replica without rows of a batch runs on zero rows: numbers recorded from TensorFlow 2.21 on two CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf

NAN = float("nan")


def context() -> Any:
    return tf.distribute.get_replica_context()


@pytest.fixture
def two() -> tuple[Any, Any]:
    """Return a strategy of two replicas, and a batch of one row."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = tf.data.Dataset.from_tensor_slices([[1.0, 2.0]]).batch(2)
    return strategy, next(iter(strategy.experimental_distribute_dataset(dataset)))


def parts_of(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(each).tolist() for each in strategy.experimental_local_results(value)]


@pytest.mark.parametrize(
    ("step", "parts", "total", "mean"),
    [
        (lambda x: tf.constant(5.0), [5.0, 5.0], 10.0, 5.0),
        (lambda x: tf.constant(5), [5, 5], 10, 5.0),
        (lambda x: context().replica_id_in_sync_group, [0, 1], 1, 0.5),
        (lambda x: tf.zeros([3]) + 7.0, [[7.0] * 3] * 2, [14.0] * 3, [7.0] * 3),
        (lambda x: tf.shape(x)[0], [1, 0], 1, 0.5),
        (lambda x: tf.reduce_sum(x), [3.0, 0.0], 3.0, 1.5),
        (lambda x: tf.reduce_sum(x, axis=0), [[1.0, 2.0], [0.0, 0.0]], [1.0, 2.0], [0.5, 1.0]),
    ],
    ids=["constant", "integer", "number", "vector", "rows", "sum", "sum_of_columns"],
)
def test_what_it_computes_counts(
    two: tuple[Any, Any], step: Callable[[Any], Any], parts: list[Any], total: Any, mean: Any
) -> None:
    strategy, batch = two
    assert parts_of(strategy, strategy.run(step, args=(batch,))) == parts
    assert np.asarray(strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)).tolist() == total
    reduced = np.asarray(strategy.reduce("MEAN", strategy.run(step, args=(batch,)), axis=None))
    np.testing.assert_allclose(reduced, mean)


def test_a_mean_over_no_rows_does_not_count(two: tuple[Any, Any]) -> None:
    """It is NaN on the replica, as in TensorFlow, where it makes every sum of replicas NaN too."""
    strategy, batch = two
    means = strategy.run(lambda x: tf.reduce_mean(x), args=(batch,))
    np.testing.assert_array_equal(parts_of(strategy, means), [1.5, NAN])
    for op in ("SUM", "MEAN"):
        assert float(strategy.reduce(op, means, axis=None)) == 1.5
    told = strategy.run(lambda x: context().all_reduce("MEAN", tf.reduce_mean(x)), args=(batch,))
    assert parts_of(strategy, told) == [1.5, 1.5]


def test_a_nan_of_rows_counts(two: tuple[Any, Any]) -> None:
    strategy, batch = two
    lost = strategy.run(lambda x: tf.reduce_mean(x) * NAN, args=(batch,))
    assert np.isnan(strategy.reduce("SUM", lost, axis=None))


@pytest.mark.parametrize(
    ("step", "parts"),
    [
        (lambda x: context().all_reduce("SUM", tf.constant(1.0)), [2.0, 2.0]),
        (lambda x: context().all_reduce("MEAN", tf.constant(4.0)), [4.0, 4.0]),
        (lambda x: context().all_reduce("SUM", tf.reduce_sum(x)), [3.0, 3.0]),
        (lambda x: context().all_gather(tf.constant([4.0]), axis=0), [[4.0, 4.0], [4.0, 4.0]]),
        (lambda x: context().all_gather(x, axis=0), [[[1.0, 2.0]], [[1.0, 2.0]]]),
    ],
    ids=["sum", "mean", "sum_of_rows", "gather", "gather_rows"],
)
def test_every_replica_is_told_the_same(two: tuple[Any, Any], step: Callable[[Any], Any], parts: list[Any]) -> None:
    strategy, batch = two
    assert parts_of(strategy, strategy.run(step, args=(batch,))) == parts


def test_gathered(two: tuple[Any, Any]) -> None:
    strategy, batch = two
    rows = strategy.run(lambda x: x * 2.0, args=(batch,))
    assert np.asarray(strategy.gather(rows, axis=0)).tolist() == [[2.0, 4.0]]
    vectors = strategy.run(lambda x: tf.constant([4.0]), args=(batch,))
    assert np.asarray(strategy.gather(vectors, axis=0)).tolist() == [4.0, 4.0]


def test_variables_and_metrics(two: tuple[Any, Any]) -> None:
    strategy, batch = two
    kinds = tf.VariableAggregation
    with strategy.scope():
        summed = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=kinds.SUM)
        averaged = tf.Variable(1.0, aggregation=kinds.MEAN)
        added = tf.Variable(1.0, aggregation=kinds.SUM)
        mean, total = tf.keras.metrics.Mean(), tf.keras.metrics.Sum()

    def step(x: Any) -> None:
        summed.assign_add(1.0)
        averaged.assign(tf.constant(3.0))
        added.assign_add(1.0)
        mean.update_state(x)
        total.update_state(1.0)

    strategy.run(step, args=(batch,))
    assert [float(v.read_value()) for v in (summed, averaged, added)] == [2.0, 3.0, 3.0]
    assert [float(mean.result()), float(total.result())] == [1.5, 2.0]


@pytest.mark.parametrize(
    ("loss", "parts", "weights"),
    [
        (lambda y, w: tf.reduce_sum(y), [8.0, 0.0], [1.9, 2.8]),
        (lambda y, w: tf.nn.compute_average_loss(y[:, 0], global_batch_size=1), [8.0, 0.0], [1.9, 2.8]),
        (lambda y, w: tf.nn.scale_regularization_loss(tf.reduce_sum(w)), [2.5, 2.5], [1.9, 2.9]),
        (lambda y, w: tf.reduce_mean(y), [8.0, NAN], [1.9, 2.8]),
    ],
    ids=["sum", "average", "regularization", "mean"],
)
def test_training(
    two: tuple[Any, Any], loss: Callable[[Any, Any], Any], parts: list[Any], weights: list[float]
) -> None:
    """TensorFlow's numbers, but for the mean over no rows, whose gradient makes TensorFlow's weights NaN."""
    strategy, batch = two
    with strategy.scope():
        w = tf.Variable([[2.0], [3.0]])
        optimizer = tf.keras.optimizers.SGD(0.1)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(tf.matmul(x, w), w)
        (gradient,) = tape.gradient(value, [w])
        optimizer.apply_gradients([(gradient, w)])
        return value

    np.testing.assert_array_equal(parts_of(strategy, strategy.run(step, args=(batch,))), parts)
    np.testing.assert_allclose(np.asarray(w.read_value())[:, 0], weights, rtol=1e-6)


def test_a_function_that_cannot_do_without_rows_counts_for_nothing(two: tuple[Any, Any]) -> None:
    """The greatest of no numbers is not defined: the replica runs on a stand-in row, whose results do not count."""
    strategy, batch = two
    first = strategy.run(lambda x: tf.keras.ops.max(x), args=(batch,))
    np.testing.assert_array_equal(parts_of(strategy, first), [2.0, NAN])
    assert float(strategy.reduce("MAX", first, axis=None)) == 2.0
    assert float(strategy.reduce("SUM", first, axis=None)) == 2.0
