"""A compiled function whose strategy lies on other devices from now on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import stratagem
from stratagem import keras
from stratagem.replica.run import ReplicaRunner


def test_a_function_is_compiled_anew_where_its_strategy_lies_on_other_devices() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        total = keras.Variable(np.zeros(2, "float32"), trainable=False, aggregation="sum")
    sizes: list[int] = []

    def add(x: Any) -> Any:
        total.assign_add(x)
        return x * 2

    @stratagem.function
    def step(x: Any) -> Any:
        sizes.append(strategy.num_replicas_in_sync)
        return strategy.reduce("sum", strategy.run(add, args=(x,)), axis=None)

    one = np.ones(2, "float32")
    np.testing.assert_array_equal(step(one), [4, 4])
    np.testing.assert_array_equal(step(one), [4, 4])
    assert sizes.count(2) == len(sizes)
    traced = len(sizes)
    strategy.mesh.lie_on(jax.devices("cpu")[1:4])
    strategy._runner = ReplicaRunner(strategy)  # as `follow_workers` does
    np.testing.assert_array_equal(step(one), [6, 6])
    np.testing.assert_array_equal(np.asarray(total), [7, 7])
    assert sizes[traced:]
    assert set(sizes[traced:]) == {3}
