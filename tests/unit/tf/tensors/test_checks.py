"""Assertions: at once on known values; in compiled functions when the step has ended, wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf

Invalid = tf.errors.InvalidArgumentError


def positive(x: Any) -> Any:
    tf.debugging.assert_positive(x, "widths")
    return x * 2


def test_a_known_value_is_checked_at_once_and_a_computed_one_after_the_step() -> None:
    compiled = tf.function(positive)
    np.testing.assert_array_equal(compiled(tf.constant([1.0, 2.0])), [2.0, 4.0])
    line = f"{Path(__file__)}:{positive.__code__.co_firstlineno + 1}"
    for function, where in ((positive, ""), (compiled, f", in {line}: `tf.debugging.assert")):
        with pytest.raises(Invalid) as failed:
            function(tf.constant([1.0, -2.0]))
        assert str(failed.value).startswith(f"widths: assert_positive does not hold{where}")
        assert "[ 1. -2.]" in str(failed.value)
    np.testing.assert_array_equal(compiled(tf.constant([1.0, 2.0])), [2.0, 4.0])  # the failure is forgotten


@pytest.mark.parametrize(
    ("check", "good", "bad", "shown"),
    [
        (lambda x: tf.debugging.assert_equal(x, [1.0, 2.0]), [1.0, 2.0], [1.0, 3.0], "[1. 3.]; [1. 2.]"),
        (lambda x: tf.debugging.assert_none_equal(x, 5.0), [1.0, 2.0], [5.0, 2.0], "[5. 2.]; 5.0"),
        (lambda x: tf.debugging.assert_near(x, [1.0, 2.0]), [1.0, 2.0000001], [1.0, 2.1], "[1.  2.1]"),
        (lambda x: tf.debugging.assert_less(x, 3.0), [1.0, 2.0], [1.0, 3.0], "[1. 3.]; 3.0"),
        (lambda x: tf.debugging.check_numerics(x / x, "ratio"), [1.0, 2.0], [1.0, 0.0], "ratio: check_numerics"),
        (lambda x: tf.debugging.Assert(x[0] > 0, ["first", x]), [1.0, 2.0], [-1.0, 2.0], "first; [-1.  2.]"),
        (lambda x: tf.debugging.assert_less(x * np.ones(9), 3.0, summarize=2), [0.5] * 9, [4.0] * 9, "[4.0 4.0 ...]"),
    ],
)
def test_each_kind(check: Any, good: Any, bad: Any, shown: str) -> None:
    compiled = tf.function(lambda x: (check(x), x)[1])
    np.testing.assert_allclose(compiled(tf.constant(good)), good)
    with pytest.raises(Invalid) as failed:
        compiled(tf.constant(bad))
    assert shown in str(failed.value)


def test_inside_loops_branches_and_mapped_functions() -> None:
    def body(i: Any, x: Any) -> Any:
        tf.debugging.assert_less(x, 100.0, "in a loop")
        return i + 1, x * 2

    def loop(n: Any, x: Any) -> Any:
        return tf.while_loop(lambda i, _: i < n, body, (0, x))[1]

    def branch(x: Any) -> Any:
        return tf.cond(x > 1.0, lambda: tf.debugging.check_numerics(x / 0.0, "in a branch"), lambda: x)

    def mapped(x: Any) -> Any:
        return tf.vectorized_map(lambda row: tf.debugging.check_numerics(row, "in a row"), x)

    compiled = tf.function(loop)
    assert float(compiled(tf.constant(3), tf.constant(1.0))) == 8.0
    with pytest.raises(Invalid, match=r"in a loop.*128\.0"):
        compiled(tf.constant(9), tf.constant(1.0))
    assert float(tf.function(branch)(tf.constant(0.5))) == 0.5
    with pytest.raises(Invalid, match="in a branch"):
        tf.function(branch)(tf.constant(2.0))
    with pytest.raises(Invalid, match=r"in a row.*\[nan  1\.\]"):
        tf.function(mapped)(tf.constant([[1.0, 2.0], [np.nan, 1.0]]))


def test_under_a_tape_on_replicas_and_the_failed_step_changes_nothing() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        weight = tf.Variable(3.0)
        optimizer = tf.keras.optimizers.SGD(1.0)

    def step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x) * weight
            tf.debugging.assert_less(loss, 20.0, "loss")
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    rows = tf.data.Dataset.from_tensor_slices(np.array([1.0, 1.0, 2.0, 9.0, 1.0], "float32")).batch(2)
    for run in (lambda x: strategy.run(step, args=(x,)), tf.function(lambda x: strategy.run(step, args=(x,)))):
        weight.assign(3.0)
        first, second, last = strategy.experimental_distribute_dataset(rows)
        run(first)
        assert float(weight) == 1.0
        weight.assign(3.0)
        with pytest.raises(Invalid, match=r"loss: assert_less does not hold on replica 1 of 2, in .*: 27\.0; 20\.0"):
            run(second)
        assert float(weight) == 3.0
        run(last)  # one replica has no rows
        assert float(weight) == 2.0


def test_a_program_that_another_has_traced_raises_in_both() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    whole = tf.function(lambda x: strategy.run(positive, args=(x,)))
    for run in (whole, lambda x: strategy.run(positive, args=(x,)), whole):
        with pytest.raises(Invalid, match="replica 0 of 2"):
            run(tf.constant([-1.0]))


class _Bounded(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        tf.debugging.assert_less(x, 10.0, "bounded")
        return x * 1.0


@pytest.mark.parametrize("kind", [stratagem.MirroredStrategy, stratagem.CentralStorageStrategy])
def test_in_a_layer_while_fit_trains(kind: Any) -> None:
    with kind(["cpu:0", "cpu:1"]).scope():
        model = keras.Sequential([_Bounded(), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", "mse")
    x = np.arange(11, dtype="float32").reshape(11, 1)
    model.fit(x[:8] / 10, x[:8], batch_size=4, verbose=0)
    with pytest.raises(Invalid, match=r"bounded: assert_less does not hold on replica 1 of 2, .*\[\[10\.\]\]"):
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)  # the last batch is 2 rows and 1
    assert np.isfinite(model.layers[1].kernel.numpy()).all()  # its memory was not lost with the step


def test_a_function_that_jax_compiles_by_itself_fails_too() -> None:
    def run() -> None:
        jax.jit(positive)(tf.constant([-1.0]))
        jax.effects_barrier()

    with pytest.raises(jax.errors.JaxRuntimeError, match="widths"):
        run()


def test_all_numbers_are_checked_in_functions_and_in_operations() -> None:
    half = tf.function(lambda x: tf.sqrt(x) * 0.5)
    tf.debugging.enable_check_numerics()
    try:
        assert float(half(tf.constant(4.0))) == 1.0
        for run in (half, tf.sqrt):
            with pytest.raises(Invalid, match="`sqrt` computed NaN or infinity"):
                run(tf.constant(-1.0))
        with pytest.raises(Invalid, match="`log` computed NaN or infinity: -inf"):
            tf.math.log(0.0)
        kept = tf.reshape(tf.constant([np.nan, np.inf]), [2, 1])  # what only moves them passes, as in TensorFlow
        assert kept.shape == (2, 1)
    finally:
        tf.debugging.disable_check_numerics()
    assert np.isnan(half(tf.constant(-1.0)))
    assert np.isneginf(tf.math.log(0.0))


def test_frames_in_tracebacks() -> None:
    """The frames between the program and the layer's error are those of Keras."""

    class Refused(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            raise ValueError("refused")

    def frames() -> int:
        with pytest.raises(ValueError, match="refused") as error:
            Refused()(np.ones(1))
        return len(error.traceback)

    few = frames()
    tf.debugging.disable_traceback_filtering()
    try:
        assert (tf.debugging.is_traceback_filtering_enabled(), jax.config.jax_traceback_filtering) == (False, "off")
        assert frames() > few
    finally:
        tf.debugging.enable_traceback_filtering()
    assert (tf.debugging.is_traceback_filtering_enabled(), jax.config.jax_traceback_filtering) == (True, "auto")
    assert frames() == few
