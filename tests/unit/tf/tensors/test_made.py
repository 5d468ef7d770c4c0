"""Variables that `strategy.run` makes at each call, as eager TensorFlow does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.errors import UsageError

ON_READ = tf.VariableSynchronization.ON_READ


@pytest.fixture(scope="module")
def strategy() -> Any:
    return tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])


def components(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(each).tolist() for each in strategy.experimental_local_results(value)]


@pytest.mark.parametrize("in_scope", [True, False])
def test_a_variable_is_made_at_each_call(strategy: Any, in_scope: bool) -> None:
    def step() -> Any:
        mirrored = tf.Variable(1.0, name="mirrored", aggregation=tf.VariableAggregation.MEAN)
        own = tf.Variable(1.0, synchronization=ON_READ, aggregation=tf.VariableAggregation.SUM)
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        own.assign_add(replica)
        mirrored.assign_add(replica)
        return {"variables": [mirrored, own], "read": mirrored + 1}

    def call() -> Any:
        if not in_scope:
            return strategy.run(step)
        with strategy.scope():
            return strategy.run(step)

    first, second = call(), call()
    for result in (first, second):
        mirrored, own = result["variables"]
        assert isinstance(mirrored, tf.Variable)
        assert mirrored.distribute_strategy is strategy
        assert mirrored.numpy() == 1.5
        assert components(strategy, own) == [1, 2]
        assert own.numpy() == 3
        assert components(strategy, result["read"]) == [2.5, 2.5]
    assert first["variables"][0] is not second["variables"][0]
    strategy.run(lambda: first["variables"][0].assign(4.0))
    assert (first["variables"][0].numpy(), second["variables"][0].numpy()) == (4, 1.5)


def test_a_variable_is_returned_that_nobody_reads(strategy: Any) -> None:
    with strategy.scope():
        variable = strategy.extended.call_for_each_replica(lambda: tf.Variable([1.0, 2.0], name="foo"))
        assert variable.numpy().tolist() == [1, 2]
        assert variable.assign([3.0, 4.0]).tolist() == [3, 4]


def test_one_replica(capsys: pytest.CaptureFixture[str]) -> None:
    strategy = tf.distribute.OneDeviceStrategy("cpu:0")
    variable, value = strategy.run(lambda x: (v := tf.Variable(1.0), v.assign_add(x)), args=(2.0,))
    assert (variable.numpy(), float(value)) == (3, 3)
    assert "makes a variable each time strategy.run calls it" in capsys.readouterr().err


def test_one_that_is_kept_and_one_that_is_not(strategy: Any) -> None:
    """The kept one is made in the first tracing alone."""
    kept: list[Any] = []

    def step() -> Any:
        if not kept:
            kept.append(tf.Variable(10.0))
        return kept[0].assign_add(1.0) + tf.Variable(5.0)

    assert [components(strategy, strategy.run(step)) for _ in range(2)] == [[16, 16], [17, 17]]


def test_a_function_that_makes_others_each_time(strategy: Any) -> None:
    sizes: list[int] = []

    def step() -> Any:
        sizes.append(len(sizes))
        return tf.Variable([1.0] * len(sizes)) * 2

    with pytest.raises(UsageError, match="makes different variables each time"):
        strategy.run(step)


def test_a_compiled_function_is_refused_one(strategy: Any) -> None:
    """TensorFlow refuses it too: a `tf.function` makes variables at its first call alone."""
    with pytest.raises(UsageError, match="makes a variable each time it runs: 'late'"):
        tf.function(lambda: strategy.run(lambda: tf.Variable(1.0, name="late") + 1))()
