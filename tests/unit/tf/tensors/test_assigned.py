"""What replicas assign to a `tf.Variable`: numbers recorded from TensorFlow 2.21 on two CPUs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError, UnsupportedError


def strategy_of_two() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def variable_of(strategy: Any, aggregation: str, start: Any, **facts: Any) -> Any:
    with strategy.scope():
        return tf.Variable(start, aggregation=getattr(tf.VariableAggregation, aggregation), **facts)


def parts_of(strategy: Any, value: Any) -> list[Any]:
    return [np.asarray(each).tolist() for each in strategy.experimental_local_results(value)]


def number(dtype: Any = tf.float32) -> Any:
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, dtype)


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize(
    ("aggregation", "assigned", "added", "subtracted"),
    [("SUM", 3.0, 5.0, -1.0), ("MEAN", 1.5, 3.5, 0.5), ("ONLY_FIRST_REPLICA", 1.0, 3.0, 1.0)],
)
def test_replicas_assign_different_values(
    aggregation: str, assigned: float, added: float, subtracted: float, trainable: bool
) -> None:
    strategy = strategy_of_two()
    for method, expected in (("assign", assigned), ("assign_add", added), ("assign_sub", subtracted)):
        v = variable_of(strategy, aggregation, 2.0, trainable=trainable)
        returned = strategy.run(lambda v=v, method=method: getattr(v, method)(number() + 1.0))
        assert parts_of(strategy, returned) == [expected, expected]
        assert float(v.read_value()) == expected
        assert parts_of(strategy, strategy.run(lambda v=v: v + 0.0)) == [expected, expected]


@pytest.mark.parametrize(
    ("method", "by_sum", "by_mean", "by_first"),
    [
        ("scatter_add", [3.0, 12.0, 6.0], [2.0, 9.0, 4.0], [3.0, 9.0, 2.0]),
        ("scatter_sub", [-1.0, 0.0, -2.0], [0.0, 3.0, 0.0], [-1.0, 3.0, 2.0]),
        ("scatter_mul", [2.0, 54.0, 8.0], [1.0, 13.5, 4.0], [2.0, 18.0, 2.0]),
        ("scatter_div", [0.5, 2 / 3, 0.5], [1.0, 8 / 3, 1.0], [0.5, 2.0, 2.0]),
        ("scatter_min", None, None, [1.0, 3.0, 2.0]),
        ("scatter_max", None, None, [2.0, 6.0, 2.0]),
        ("scatter_update", None, None, [2.0, 3.0, 2.0]),
    ],
)
def test_replicas_change_slices(method: str, by_sum: Any, by_mean: Any, by_first: Any) -> None:
    strategy = strategy_of_two()

    def changed(v: Any) -> Any:
        own = number()
        where = tf.cast(tf.stack([own, own + 1.0]), tf.int32)
        return getattr(v, method)(tf.IndexedSlices(tf.stack([own + 2.0, own + 3.0]), where))

    for aggregation, expected in (("SUM", by_sum), ("MEAN", by_mean), ("ONLY_FIRST_REPLICA", by_first)):
        v = variable_of(strategy, aggregation, [1.0, 6.0, 2.0])
        if expected is None:
            with pytest.raises(NotImplementedError, match=f"{method} was called in strategy.run.*{aggregation}"):
                strategy.run(changed, args=(v,))
            continue
        returned = strategy.run(changed, args=(v,))
        np.testing.assert_allclose(parts_of(strategy, returned), [expected, expected], rtol=1e-6)
        np.testing.assert_allclose(v.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "place", [lambda own: [[own], [own + 1]], lambda own: [own]], ids=["several slices", "one slice"]
)
def test_replicas_change_slices_at_indices_of_several_axes(place: Callable[[Any], Any]) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "SUM", [1.0, 6.0, 2.0])

    def changed() -> Any:
        where = tf.stack(place(number(tf.int32)))
        return v.scatter_nd_add(where, tf.ones(where.shape[:-1]))

    several = len(place(0)) == 2
    expected = [2.0, 8.0, 3.0] if several else [2.0, 7.0, 2.0]
    assert parts_of(strategy, strategy.run(changed)) == [expected, expected]
    with pytest.raises(UnsupportedError, match="scatter_nd_update"):
        strategy.run(lambda: v.scatter_nd_update([[0]], [1.0]))


def test_a_constant_of_the_first_replica_crosses_nothing() -> None:
    strategy = strategy_of_two()
    steps = variable_of(strategy, "ONLY_FIRST_REPLICA", 0, dtype=tf.int64)
    flag = variable_of(strategy, "ONLY_FIRST_REPLICA", False)
    assert parts_of(strategy, strategy.run(lambda: steps.assign_add(1))) == [1, 1]
    assert parts_of(strategy, strategy.run(lambda: flag.assign(number() < 1.0))) == [True, True]
    assert parts_of(strategy, strategy.run(lambda: flag.assign(number() > 0.0))) == [False, False]


def test_the_mean_of_whole_numbers_is_refused_where_they_may_differ() -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "MEAN", 1)
    assert parts_of(strategy, strategy.run(lambda: v.assign_add(2))) == [3, 3]
    with pytest.raises(InputError, match="The fraction of their mean would be cut off"):
        strategy.run(lambda: v.assign(number(tf.int32)))
    several = variable_of(strategy, "MEAN", [1, 2])
    with pytest.raises(InputError, match="The fraction of their mean would be cut off"):
        strategy.run(lambda: several.scatter_add(tf.IndexedSlices(tf.stack([number(tf.int32)]), [0])))


@pytest.mark.parametrize("synchronization", ["ON_WRITE", "ON_READ"])
@pytest.mark.parametrize("aggregation", ["NONE", "MEAN", "ONLY_FIRST_REPLICA"])
def test_arguments_of_tensorflow(synchronization: str, aggregation: str) -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, aggregation, 0.0, synchronization=getattr(tf.VariableSynchronization, synchronization))

    def assign() -> Any:
        one = tf.constant(1.0)
        for method in (v.assign, v.assign_add, v.assign_sub):
            assert method(one, True, "assign", False) is None
            method(one, use_locking=True, name="assign")

    assign()
    assert parts_of(strategy, v) == [1.0, 1.0]
    strategy.run(assign)
    assert parts_of(strategy, strategy.run(v.read_value)) == [1.0, 1.0]


def test_a_copy_is_another_variable() -> None:
    strategy = strategy_of_two()
    for synchronization in ("ON_WRITE", "ON_READ"):
        v = variable_of(strategy, "MEAN", 2.0, synchronization=getattr(tf.VariableSynchronization, synchronization))
        other = copy.deepcopy(v)
        strategy.run(lambda other=other: other.assign(number()))
        assert type(other) is type(v)
        assert other.distribute_strategy is v.distribute_strategy is strategy
        assert (float(v.read_value()), float(other.read_value())) == (2.0, 0.5)


@pytest.mark.parametrize("what", ["aggregation", "synchronization"])
def test_what_is_no_mode_is_refused(what: str) -> None:
    for wrong in ("invalid", 3):
        with pytest.raises(InputError, match=rf"Invalid variable {what} mode: {wrong} for variable: v(.|\n)*MEAN|READ"):
            tf.Variable(1.0, name="v", **{what: wrong})


def test_lists_are_values_too() -> None:
    strategy = strategy_of_two()
    v = variable_of(strategy, "MEAN", [1.0, 2.0])
    assert v.assign_sub([0.5, 1.0]).tolist() == [0.5, 1.0]
    assert parts_of(strategy, strategy.run(lambda: v.assign_add([1.0, 1.0]))) == [[1.5, 2.0], [1.5, 2.0]]


@pytest.mark.parametrize(("op", "expected"), [("SUM", [[2.0], [0.0], [5.0]]), ("MEAN", [[1.0], [0.0], [2.5]])])
def test_slices_of_all_replicas_stand_one_after_the_other(op: str, expected: list[list[float]]) -> None:
    strategy = strategy_of_two()

    def combined() -> Any:
        own = number()
        slices = tf.IndexedSlices(tf.reshape(tf.stack([1.0, 2.0 + own]), [2, 1]), [0, 2], tf.identity([3, 1]))
        return tf.distribute.get_replica_context().all_reduce(op, (slices, own + 1.0))

    for run in (strategy.run, tf.function(strategy.run)):
        for slices, own in strategy.experimental_local_results(run(combined)):
            assert isinstance(slices, tf.IndexedSlices)
            assert tf.convert_to_tensor(slices).tolist() == expected
            assert float(own) == {"SUM": 3.0, "MEAN": 1.5}[op]


def test_slices_that_cannot_be_combined_are_refused() -> None:
    strategy = strategy_of_two()
    slices = tf.IndexedSlices([1.0], [0])
    with pytest.raises(InputError, match=r"all_reduce of tf\.IndexedSlices was given MAX"):
        strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("MAX", slices))
    with pytest.raises(InputError, match=r"strategy\.reduce does not support IndexedSlices"):
        strategy.reduce("MEAN", slices, axis=None)
    with pytest.raises(InputError, match="without dense_shape"):
        tf.convert_to_tensor(slices)


@pytest.mark.parametrize(("trainable", "kept"), [(False, "their mean"), (True, "the value of the first")])
def test_values_that_differ_without_an_aggregation_are_told(
    trainable: bool, kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        own = tf.Variable(0.0, trainable=trainable, name=f"own_{trainable}")
        alike = tf.Variable(0.0, trainable=trainable, name=f"alike_{trainable}")

    @tf.function
    def run() -> Any:
        alike.assign_add(1.0)
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        own.assign(number)

    strategy.run(run)
    lines = [line for line in capsys.readouterr().err.splitlines() if "without aggregation" in line]
    assert len(lines) == 1
    assert f"'own_{trainable}'" in lines[0]
    assert f"It gets {kept} when the function ends" in lines[0]
    assert float(own) == (0.0 if trainable else 0.5)
    assert [float(value) for value in own._values] == [float(own)] * 2
