"""A variable that was given another one's value: a copy, which training the other leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf

X, Y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")

STRATEGIES: dict[str, Callable[[], Any]] = {
    "one": lambda: stratagem.OneDeviceStrategy("cpu:0"),
    "two": lambda: stratagem.MirroredStrategy(["cpu:0", "cpu:1"]),
    "centre": lambda: stratagem.CentralStorageStrategy(["cpu:0", "cpu:1"]),
}


def network() -> Any:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def assign_all(target: Any, source: Any) -> None:
    for own, other in zip(target.weights, source.weights, strict=True):
        own.assign(other)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", ["at once", "in a function", "in run", "by a callback"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_target_network_keeps_what_it_was_given(strategy: str, how: str) -> None:
    chosen = STRATEGIES[strategy]()
    with chosen.scope():
        source, target = network(), network()
        source.compile("sgd", "mean_squared_error")
    update: dict[str, Callable[[], Any]] = {
        "at once": lambda: assign_all(target, source),
        "in a function": stratagem.function(lambda: assign_all(target, source)),
        "in run": lambda: chosen.run(lambda: assign_all(target, source)),
    }
    given: list[list[np.ndarray]] = []

    class Update(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                assign_all(target, source)
                given.append(target.get_weights())

    if how == "by a callback":
        source.fit(X, Y, epochs=3, verbose=0, callbacks=[Update()])
    else:
        source.fit(X, Y, verbose=0)
        update[how]()
        given.append(source.get_weights())
        source.fit(X, Y, epochs=2, verbose=0)
    for own, expected in zip(target.get_weights(), given[0], strict=True):
        np.testing.assert_array_equal(own, expected)
    assert not np.array_equal(source.get_weights()[0], given[0][0])
    assert target.predict(X, verbose=0).shape == (4, 1)


def test_before_any_training() -> None:
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        source, target = network(), network()
        source.compile("sgd", "mean_squared_error")
    assign_all(target, source)
    expected = source.get_weights()
    source.fit(X, Y, verbose=0)
    for own, before in zip(target.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(own, before)


def test_a_variable_of_its_own_value() -> None:
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        variable = keras.Variable(np.arange(3.0, dtype="float32"))
    variable.assign(variable)
    np.testing.assert_array_equal(variable, [0, 1, 2])


SNAPSHOTS: dict[str, Callable[[Any], Any]] = {
    "keras.Variable of it": keras.Variable,
    "keras.Variable of its value": lambda variable: keras.Variable(variable.value),
    "keras.Variable by name": lambda variable: keras.Variable(initializer=variable.value),
    "tf.Variable of it": tf.Variable,
    "tf.Variable of its value": lambda variable: tf.Variable(variable.value),
    "tf.identity": tf.identity,
    "tf.convert_to_tensor": tf.convert_to_tensor,
    "read_value": lambda variable: variable.read_value(),
    "numpy": lambda variable: variable.numpy(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("snapshot", SNAPSHOTS)
@pytest.mark.parametrize("strategy", ["one", "two"])
def test_what_was_made_of_a_variable_stays(strategy: str, snapshot: str) -> None:
    with STRATEGIES[strategy]().scope():
        model = network()
        model.compile(keras.optimizers.SGD(0.1), "mean_squared_error")
        model.fit(X, Y, verbose=0)
        made = [SNAPSHOTS[snapshot](each) for each in (model.weights[0], model.optimizer.iterations)]
    expected = [model.get_weights()[0].copy(), 1]
    model.fit(X, Y, epochs=2, verbose=0)
    for own, before in zip(made, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(own), before)
    assert int(model.optimizer.iterations) == 3
