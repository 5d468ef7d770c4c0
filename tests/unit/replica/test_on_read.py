"""Variables of which each replica has a value: numbers recorded from TensorFlow 2.21 on two CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import InputError

TOGETHER = {"SUM": lambda parts: sum(parts), "MEAN": lambda parts: sum(parts) / 2, "ONLY_FIRST_REPLICA": min}
"""What the two replicas' values make together; the first one's is the smaller one in these programs."""


def strategy_of_two() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def variable_of(strategy: Any, aggregation: str, start: Any = 6.0) -> Any:
    with strategy.scope():
        return tf.Variable(
            start,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=getattr(tf.VariableAggregation, aggregation),
        )


def parts_of(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(each).tolist() for each in strategy.experimental_local_results(value)]


def number() -> Any:
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


@pytest.mark.parametrize("aggregation", TOGETHER)
def test_each_replica_keeps_its_value_between_runs(aggregation: str) -> None:
    strategy = strategy_of_two()
    together = TOGETHER[aggregation]
    v = variable_of(strategy, aggregation)
    assert parts_of(strategy, v) == [6.0, 6.0]
    assert float(v.read_value()) == together([6.0, 6.0])
    assert parts_of(strategy, strategy.run(lambda: v.assign(number() + 1.0))) == [1.0, 2.0]
    assert float(v.read_value()) == together([1.0, 2.0])
    assert parts_of(strategy, strategy.run(lambda: v + 1.0)) == [2.0, 3.0]
    assert parts_of(strategy, strategy.run(lambda: v.assign_add(10.0))) == [11.0, 12.0]
    assert parts_of(strategy, v) == [11.0, 12.0]
    assert float(v.read_value()) == together([11.0, 12.0])
    assert float(strategy.reduce("SUM", v, axis=None)) == 23.0
    assert float(strategy.reduce("MEAN", v, axis=None)) == 11.5
    assert parts_of(strategy, strategy.run(lambda: v.assign_sub(1.0))) == [10.0, 11.0]


def test_a_replicas_copy_is_read_like_a_variable() -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM")
    strategy.run(lambda: v.assign(number() + 1.0))
    assert [copy.read_value().numpy() for copy in strategy.experimental_local_results(v)] == [1.0, 2.0]
    assert [copy.read_value().device for copy in v.values] == [copy.device for copy in v.values]
    assert [float(2.0 * copy) for copy in v.values] == [2.0, 4.0]


@pytest.mark.parametrize("aggregation", TOGETHER)
def test_an_update_changes_the_value_of_each_replica(aggregation: str) -> None:
    """TensorFlow's `testSyncOnReadVariableUpdate`: 5.0 assigned to a sum on two replicas makes 10.0."""
    strategy, together = strategy_of_two(), TOGETHER[aggregation]
    v = variable_of(strategy, aggregation)
    results = strategy.extended.update(v, lambda v, x: v.assign(x), args=(5.0,), group=False)
    assert [float(result) for result in results] == parts_of(strategy, v) == [5.0, 5.0]
    assert float(v.read_value()) == together([5.0, 5.0])
    own = strategy.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group + 1.0)
    strategy.extended.update(v, lambda v, x: v.assign_add(x), args=(own,))
    assert parts_of(strategy, v) == [6.0, 7.0]
    assert float(v.read_value()) == together([6.0, 7.0])


@pytest.mark.parametrize("aggregation", TOGETHER)
def test_in_a_compiled_function(aggregation: str) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, aggregation)

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: v.assign_add(number() + 1.0))

    assert parts_of(strategy, step()) == [7.0, 8.0]
    assert parts_of(strategy, step()) == [8.0, 10.0]
    assert parts_of(strategy, v) == [8.0, 10.0]
    assert float(tf.function(lambda: v.read_value())()) == TOGETHER[aggregation]([8.0, 10.0])


@pytest.mark.parametrize("aggregation", ["MEAN", "ONLY_FIRST_REPLICA"])
def test_assigned_outside_a_step_every_replica_has_the_value(aggregation: str) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, aggregation)
    v.assign(8.0)
    assert (parts_of(strategy, v), float(v.read_value())) == ([8.0, 8.0], 8.0)
    v.assign_add(4.0)
    v.assign_sub(1.0)
    assert (parts_of(strategy, v), float(v.read_value())) == ([11.0, 11.0], 11.0)


def test_a_sum_assigned_outside_a_step_is_divided() -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM")
    v.assign(8.0)
    assert (parts_of(strategy, v), float(v.read_value())) == ([4.0, 4.0], 8.0)
    for method in (v.assign_add, v.assign_sub):  # TensorFlow refuses it alike
        with pytest.raises(InputError, match="does not say which of them to change"):
            method(1.0)
    assert parts_of(strategy, v) == [4.0, 4.0]


def test_a_sum_of_integers_keeps_its_remainder() -> None:
    """TensorFlow divides 7 into 3 and 3, and reads 6: a count that is restored from a checkpoint would be less."""
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM", start=7)
    assert (parts_of(strategy, v), int(v.read_value())) == ([7, 7], 14)
    v.assign(7)
    assert (parts_of(strategy, v), int(v.read_value())) == ([4, 3], 7)


def test_a_mean_of_integers() -> None:
    strategy = strategy_of_two()
    with strategy.scope():
        v = tf.Variable(1, aggregation=tf.VariableAggregation.MEAN)
    strategy.run(lambda: v.assign(tf.constant(3)))
    assert int(v.read_value()) == 3


@pytest.mark.parametrize("where", ["eager", "compiled"])
def test_without_aggregation_it_is_read_in_a_step_alone(where: str) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "NONE")
    strategy.run(lambda: v.assign(number() + 1.0))
    assert parts_of(strategy, v) == [1.0, 2.0]
    assert parts_of(strategy, strategy.run(lambda: v + 1.0)) == [2.0, 3.0]
    assert parts_of(strategy, tf.function(lambda: strategy.run(lambda: v.assign_add(1.0)))()) == [2.0, 3.0]
    reads: list[Callable[[], Any]] = [v.read_value, v.numpy, lambda: v + 1.0, lambda: tf.reduce_sum(v), lambda: v.value]
    for read in reads:
        with pytest.raises(InputError, match=r"Could not convert from .* VariableAggregation\.NONE") as caught:
            tf.function(read)() if where == "compiled" else read()
        assert "experimental_local_results(v)" in str(caught.value)
    v.assign(5.0)
    assert parts_of(strategy, v) == [5.0, 5.0]


def test_read_var_puts_parts_together() -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM")
    assert float(strategy.extended.read_var(v)) == 12.0


def test_a_checkpoint_has_what_the_parts_make_together(tmp_path: Any) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM")
    strategy.run(lambda: v.assign(number() + 1.0))
    path = stratagem.train.Checkpoint(v=v).write(str(tmp_path / "c"))
    v.assign(0.0)
    stratagem.train.Checkpoint(v=v).restore(path)
    assert (float(v.read_value()), parts_of(strategy, v)) == (3.0, [1.5, 1.5])


def test_on_one_replica_it_is_a_variable_like_others() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    v = variable_of(strategy, "SUM")
    strategy.run(lambda: v.assign_add(1.0))
    assert float(v.read_value()) == 7.0


def test_no_synchronization_is_refused() -> None:
    """As in TensorFlow: "`NONE` variable synchronization mode is not supported with tf.distribute strategy"."""
    with strategy_of_two().scope(), pytest.raises(InputError, match="synchronization=NONE in the scope of a strategy"):
        tf.Variable(1.0, synchronization=tf.VariableSynchronization.NONE)
    assert float(tf.Variable(1.0, synchronization=tf.VariableSynchronization.NONE).numpy()) == 1.0


def test_what_replicas_hold_of_a_variable() -> None:
    strategy = strategy_of_two()
    own, outside = variable_of(strategy, "SUM"), tf.Variable(1.0)
    with strategy.scope():
        mirrored = tf.Variable(3.0)
    strategy.run(lambda: own.assign(number()))
    assert [float(value) for value in own.values] == [0.0, 1.0]
    assert [float(each.read_value()) for each in mirrored.values] == [3.0, 3.0]
    assert not hasattr(outside, "values")
