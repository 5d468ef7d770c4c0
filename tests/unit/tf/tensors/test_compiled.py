"""The functions of `stratagem.tf` in compiled functions, in replicas and in models of symbolic tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import UsageError


def leaves(x: Any) -> Any:
    while True:
        if tf.reduce_sum(x) > 100.0:
            raise ValueError
        x = x * 2
    return x


def counts(x: Any) -> Any:
    for _ in range(tf.cast(tf.reduce_sum(x), tf.int32)):
        x = x + 1
        if tf.reduce_sum(x) > 100.0:
            raise ValueError
    return x


def gives_to_numpy(x: Any) -> Any:
    return np.asarray(x)


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (leaves, "if tf.reduce_sum(x) > 100.0:"),
        (counts, "for _ in range(tf.cast(tf.reduce_sum(x), tf.int32)):"),
        (gives_to_numpy, "return np.asarray(x)"),
    ],
)
def test_python_on_a_traced_tensor_is_explained_with_its_line(step: Callable[[Any], Any], line: str) -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    for run in (tf.function(step), lambda x: strategy.run(step, args=(x,))):
        with pytest.raises(UsageError) as failed:
            run(tf.ones(3))
        assert f"{Path(__file__).name}:" in str(failed.value)
        assert f"`{line}`" in str(failed.value)
        assert "keras.ops" in str(failed.value) or "tf.while_loop" in str(failed.value)


def test_it_is_explained_inside_a_layer_too() -> None:
    class Asking(keras.Layer):
        def call(self, x: Any) -> Any:
            return leaves(x)

    layer = Asking()
    with pytest.raises(UsageError, match=r"if tf.reduce_sum\(x\) > 100.0"):
        tf.function(lambda x: layer(x))(tf.ones(3))


def test_numpy_of_a_traced_tensor_is_explained() -> None:
    with pytest.raises(UsageError, match=r"tf.print\(tensor\)"):
        tf.function(lambda x: x.numpy())(tf.ones(3))


def test_a_loop_over_a_range_is_unrolled_and_its_numbers_are_known() -> None:
    @tf.function
    def added(x: Any) -> Any:
        total = 0.0
        for i in tf.range(4):
            if i == 0:
                total = total + x
            total += tf.cast(i, tf.float32)
        return total

    assert added(tf.ones(2)).numpy().tolist() == [7.0, 7.0]


def test_branches_and_loops_assign_variables() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def choose(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 1, lambda: v.assign_add(1.0), lambda: v.assign(5.0))

    assert (float(choose(tf.ones(3))), float(v.numpy())) == (2.0, 2.0)
    assert (float(choose(tf.zeros(3))), float(v.numpy())) == (5.0, 5.0)

    @tf.function
    def pick(number: Any) -> Any:
        tf.switch_case(number, [lambda: v.assign(10.0), lambda: v.assign_sub(1.0)], default=lambda: v.assign(0.0))

    for number, expected in ((0, 10.0), (1, 9.0), (7, 0.0)):
        pick(tf.constant(number))
        assert float(v.numpy()) == expected

    @tf.function
    def loop(n: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            v.assign_add(2.0)
            return i + 1, total + tf.cast(i, tf.float32)

        return tf.while_loop(lambda i, total: i < n, body, (0, 0.0))

    count, total = loop(tf.constant(4))
    assert (int(count), float(total), float(v.numpy())) == (4, 6.0, 8.0)


def test_a_loop_with_a_limit_has_a_gradient() -> None:
    w = tf.Variable(3.0)

    @tf.function
    def slope(n: Any) -> Any:
        with tf.GradientTape() as tape:
            _, y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * w), (0, 1.0), maximum_iterations=5)
        return tape.gradient(y, w)

    assert float(slope(tf.constant(3))) == 27.0  # of w cubed


def test_printing_happens_once_a_step_with_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    w = tf.Variable(2.0)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tf.print("x:", x, {"sum": tf.reduce_sum(x)}, sep="|")
            y = w * tf.reduce_sum(x)
        return tape.gradient(y, w)

    assert [float(step(tf.constant(x))) for x in ([1.0, 2.0], [3.0, 4.0])] == [3.0, 7.0]
    assert capsys.readouterr().err.splitlines() == ["x:|[1 2]|{'sum': 3}", "x:|[3 4]|{'sum': 7}"]


def test_replicas_draw_numbers_of_their_own_and_a_seed_repeats_them() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1", "cpu:2"])
    with strategy.scope():
        seen = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM
        )

    def draw() -> Any:
        seen.assign_add(2.0)
        return tf.random.uniform([2]), tf.random.normal([2], seed=5), tf.nn.dropout(tf.ones(8), 0.5)

    step = tf.function(lambda: strategy.run(draw))

    def drawn() -> list[np.ndarray]:
        return [np.stack(strategy.experimental_local_results(part)) for part in step()]

    tf.random.set_seed(3)
    first, second = drawn(), drawn()
    tf.random.set_seed(3)
    again = drawn()
    for one, two, same in zip(first, second, again, strict=True):
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, two)
        assert not np.array_equal(one[0], one[1])
    assert set(np.unique(first[2])) == {0.0, 2.0}
    assert float(seen.numpy()) == 3 * 3 * 2.0


def test_symbolic_tensors_make_a_model_that_is_saved(tmp_path: Path) -> None:
    x: Any = keras.Input((4,))
    y = tf.nn.relu(tf.concat([x, x * -2.0], -1))
    y = tf.reshape(y, [-1, 2, 4])
    model = keras.Model(x, tf.reduce_sum(y, axis=1) + tf.cast(tf.reduce_mean(x, 1, keepdims=True) > 0, "float32"))
    assert model.output_shape == (None, 4)
    given = np.array([[1.0, -2.0, 0.0, 3.0]], np.float32)
    expected = [[2.0, 5.0, 1.0, 4.0]]
    assert model(given).numpy().tolist() == expected
    model.save(tmp_path / "model.keras")
    loaded: Any = keras.models.load_model(tmp_path / "model.keras")
    assert loaded(given).numpy().tolist() == expected


def test_a_list_of_symbolic_tensors_becomes_one(tmp_path: Path) -> None:
    """As recommenders join embeddings: `tf.transpose(tf.convert_to_tensor(embeddings), [1, 0, 2])`."""
    a, b = keras.Input((3,), dtype="int32"), keras.Input((3,), dtype="int32")
    joined = tf.transpose(tf.convert_to_tensor([a, b]), [1, 0, 2])
    assert joined.shape == (None, 2, 3)
    model = keras.Model([a, b], [joined, tf.convert_to_tensor([a, b], tf.float32)])
    model.save(tmp_path / "model.keras")
    loaded: Any = keras.models.load_model(tmp_path / "model.keras")
    given = [np.full((1, 3), 1, np.int32), np.full((1, 3), 2, np.int32)]
    for each in (model, loaded):
        of_rows, stacked = each(given)
        assert of_rows.numpy().tolist() == [[[1, 1, 1], [2, 2, 2]]]
        assert (stacked.dtype, stacked.numpy().tolist()) == ("float32", [[[1.0, 1.0, 1.0]], [[2.0, 2.0, 2.0]]])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_of_the_first_value_is_called_once_and_may_draw(compiled: bool) -> None:
    strategy, made, called = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]), [], []

    def first() -> Any:
        called.append(1)
        return tf.random.uniform([2])

    def make() -> Any:
        if not made:
            made.append(tf.Variable(first))
            of_replicas: Any = {"synchronization": tf.VariableSynchronization.ON_READ}
            made.append(tf.Variable(first, aggregation=tf.VariableAggregation.MEAN, **of_replicas))
        return tf.random.uniform([2])

    tf.random.set_seed(3)
    with strategy.scope():
        drawn = (tf.function(make) if compiled else make)()
    plain, apart = made
    assert len({*plain.numpy().tolist(), *apart.numpy().tolist(), *drawn.numpy().tolist()}) == 6
    own = strategy.experimental_local_results(strategy.run(lambda: apart + 0.0))
    assert [part.tolist() for part in own] == [apart.numpy().tolist()] * 2
    assert compiled or len(called) == 2


def test_variables_are_those_of_keras() -> None:
    v = tf.Variable([1, 2], name="outer/v", trainable=False)
    assert (v.name, str(v.dtype), v.trainable) == ("outer_v", "int32", False)
    assert isinstance(v, keras.Variable)
    assert isinstance(keras.Variable(1.0), tf.Variable)
    assert v.read_value().tolist() == [1, 2]
    assert v.get_shape().as_list() == [2]
    late = tf.Variable(lambda: tf.ones([2, 3]))
    assert (late.shape, late.numpy().sum()) == ((2, 3), 6.0)

    made: list[Any] = []

    @tf.function
    def first_call(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(10.0))
        made[0].assign_add(x)
        return made[0].read_value()

    assert [float(first_call(tf.constant(x))) for x in (1.0, 2.0)] == [11.0, 13.0]
    with pytest.raises(UsageError, match="initial_value"):
        tf.function(lambda x: tf.Variable(x))(tf.constant(1.0))


@pytest.mark.parametrize(("aggregation", "combined"), [("SUM", 3.0), ("MEAN", 1.5)])
def test_all_replicas_read_at_once_what_they_assigned(aggregation: str, combined: float) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable(10.0, trainable=False, aggregation=getattr(tf.VariableAggregation, aggregation))

    def step() -> Any:
        own = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32) + 1.0
        v.assign_add(own)
        added = v.read_value()
        v.assign_sub(own)
        subtracted = v.read_value()
        v.assign(own)
        return added, subtracted, v.read_value()

    added, subtracted, assigned = map(strategy.experimental_local_results, strategy.run(step))
    assert [float(x.numpy()) for x in added] == [10.0 + combined] * 2
    assert [float(x.numpy()) for x in subtracted] == [10.0] * 2
    assert [float(x.numpy()) for x in assigned] == [combined] * 2
    assert v.numpy() == combined
    v.assign_add(1.0)  # outside of run, as any variable
    assert v.numpy() == combined + 1.0
