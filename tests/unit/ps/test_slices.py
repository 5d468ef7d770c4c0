"""Several workers change slices of one variable: additions add up, rows that others change stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.ps import servers as in_process
from tests.unit.ps.servers import small_cluster

import stratagem
import stratagem.tf as tf
from stratagem.coordinator import ClusterCoordinator
from stratagem.ps.slices import of_rows, rows_named

AT_0_2_2 = ([[1.0, 1.0]] * 3, [0, 2, 2])


@pytest.fixture
def coordinator() -> Iterator[ClusterCoordinator]:
    with small_cluster(2) as resolver:
        partitioner = stratagem.experimental.partitioners.FixedShardsPartitioner(2)
        strategy = stratagem.ParameterServerStrategy(resolver, partitioner)
        yield ClusterCoordinator(strategy)
        strategy.close()


def at_once(coordinator: ClusterCoordinator, change: Any, *arguments: Any, compiled: bool = True) -> list[Any]:
    """Let two workers run a function that has read the variable on both before either changes it."""
    in_process.gates["meeting"] = threading.Barrier(2)
    function = tf.function(change) if compiled else change

    def run(argument: Any) -> Any:
        in_process.gates["meeting"].wait(60)
        return function(argument)

    results = [coordinator.schedule(run, args=(argument,)) for argument in arguments]
    coordinator.join()
    return [np.asarray(result.fetch()).tolist() for result in results]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("method", "first"), [("scatter_add", 20.0), ("scatter_sub", -20.0), ("scatter_nd_add", 20.0)])
def test_no_addition_is_lost(coordinator: ClusterCoordinator, method: str, first: float, *, compiled: bool) -> None:
    """TensorFlow 2.21: 100 functions on two workers that add 1 to row 0 and twice to row 2 leave 100 and 200."""
    with coordinator.strategy.scope():
        v = tf.Variable(tf.zeros([5, 2]))
    updates, rows = map(tf.constant, AT_0_2_2)
    delta = (rows[:, None], updates) if "_nd_" in method else (tf.IndexedSlices(updates, rows),)
    change = lambda _: getattr(v, method)(*delta)  # noqa: E731
    for _ in range(10):
        at_once(coordinator, change, 0, 1, compiled=compiled)
    assert np.asarray(v.value).tolist() == [[first] * 2, [0.0] * 2, [2 * first] * 2, [0.0] * 2, [0.0] * 2]


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_that_others_replace_stay(coordinator: ClusterCoordinator, *, compiled: bool) -> None:
    with coordinator.strategy.scope():
        v = tf.Variable(tf.zeros([5, 2]))

    def replace(row: Any) -> Any:
        value = tf.fill([1, 2], tf.cast(row, tf.float32))
        return v.scatter_update(tf.IndexedSlices(value, tf.reshape(row, [1])))

    for pair in ((1, 3), (2, 4)):
        own = at_once(coordinator, replace, *map(tf.constant, pair), compiled=compiled)
        assert [value[row] for value, row in zip(own, pair, strict=True)] == [[float(row)] * 2 for row in pair]
    assert np.asarray(v.value)[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_several_changes_in_one_program_are_made_in_order(coordinator: ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        v = tf.Variable(tf.ones([3, 2]))
    rows = lambda row, value: tf.IndexedSlices(tf.fill([1, 2], value), tf.constant([row]))  # noqa: E731

    def changed(w: Any) -> Any:
        w.assign_add(tf.ones([3, 2]))
        w.scatter_update(rows(1, 7.0))
        w.scatter_add(rows(1, 0.5))
        w.scatter_mul(rows(2, 10.0))
        w.scatter_nd_update(tf.constant([[0, 1]]), tf.constant([9.0]))
        return w.read_value()

    def begun_anew(w: Any) -> Any:
        w.scatter_update(rows(0, 4.0))
        w.assign(tf.zeros([3, 2]))
        w.scatter_max(rows(2, 5.0))
        return w.read_value()

    plain = tf.Variable(tf.ones([3, 2]))
    for function in (changed, begun_anew):
        expected = np.asarray(function(plain)).tolist()
        step = tf.function(lambda function=function: function(v))
        assert np.asarray(coordinator.schedule(step).fetch()).tolist() == expected
        assert np.asarray(v.value).tolist() == expected


def test_rows_are_named_by_the_first_index() -> None:
    named = rows_named("scatter_nd_update", 4, np.array([[1, 0], [3, 1]]))
    assert named.tolist() == [False, True, False, True]
    change = of_rows(np.arange(8.0).reshape(4, 2), named)
    assert (change.ids.tolist(), change.values.tolist()) == ([1, 3], [[2.0, 3.0], [6.0, 7.0]])
    assert of_rows("whole", np.array([True, True])) == "whole"
