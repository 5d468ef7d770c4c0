"""Compiled functions: the devices that they run on, and what becomes of equations that XLA is slow at on CPUs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stratagem
from stratagem import keras
from stratagem.loop import function as function_module
from stratagem.program.rules import cpu
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


def test_what_xla_is_slow_at_on_cpus_is_replaced_without_a_strategy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    quick = cpu.suited_to_cpu
    monkeypatch.setattr(function_module, "suited_to_cpu", lambda pure: seen.append(quick(pure)) or seen[-1])
    variable = keras.Variable(np.arange(2 * 6 * 6 * 3, dtype="float32").reshape(2, 6, 6, 3) % 7)

    @stratagem.function
    def gradient(x: jax.Array) -> Any:
        with stratagem.GradientTape() as tape:
            loss = (keras.ops.max_pool(keras.ops.convert_to_tensor(variable), 2, 2) * x).sum()
        return tape.gradient(loss, variable)

    x = np.ones((2, 3, 3, 3), "float32")
    got = gradient(x)
    text = jax.jit(seen[0]).lower([variable.value], [jnp.asarray(x)], []).as_text()
    assert "select_and_scatter" not in text

    want = jax.grad(lambda value: (keras.ops.max_pool(value, 2, 2) * x).sum())
    assert "select_and_scatter" in jax.jit(want).lower(variable.value).as_text()
    np.testing.assert_array_equal(got, jax.jit(want)(variable.value))
