"""A Keras optimizer, applied to one variable outside any model."""

from __future__ import annotations

import jax
import keras
import numpy as np
import pytest

from stratagem.ps.compat import optimizer_recipe
from stratagem.ps.server.updates import Updater

CPU = jax.local_devices(backend="cpu")[0]


def updater_of(optimizer: keras.optimizers.Optimizer, constraint: object = None, name: str = "weight") -> Updater:
    return Updater(optimizer_recipe(optimizer), (3,), "float32", name, constraint, CPU)


def test_numbers_are_those_of_keras() -> None:
    value = np.array([1.0, -2.0, 3.0], "float32")
    variable = keras.Variable(value.copy())
    theirs = keras.optimizers.Adam(0.1)
    updater = updater_of(keras.optimizers.Adam(123.0))  # its own rate does not count
    new, slots = value, updater.new_slots()
    for step in range(3):
        gradient = np.array([0.5, step, -1.0], "float32")
        theirs.apply([gradient], [variable])
        new, slots = updater(new, gradient, slots, step, 0.1)
    np.testing.assert_allclose(new, variable.numpy(), rtol=1e-6)
    assert [slot.shape for slot in slots] == [(3,), (3,)]
    assert value.tolist() == [1.0, -2.0, 3.0]


def test_workers_clip_and_servers_do_not() -> None:
    updater = updater_of(keras.optimizers.SGD(1.0, clipnorm=0.1))
    new, _ = updater(np.zeros(3, "float32"), np.full(3, 2.0, "float32"), updater.new_slots(), 0, 1.0)
    assert new.tolist() == [-2.0, -2.0, -2.0]


def test_a_constraint_holds_after_each_update() -> None:
    updater = updater_of(keras.optimizers.SGD(1.0), keras.constraints.NonNeg())
    new, _ = updater(np.ones(3, "float32"), np.array([2.0, 0.5, 1.0], "float32"), updater.new_slots(), 0, 1.0)
    assert new.tolist() == [0.0, 0.5, 0.0]


@pytest.mark.parametrize(("name", "expected"), [("kernel", 0.5), ("bias", 1.0)])
def test_the_name_decides_on_weight_decay(name: str, expected: float) -> None:
    optimizer = keras.optimizers.AdamW(weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    updater = updater_of(optimizer, name=name)
    new, _ = updater(np.ones(3, "float32"), np.zeros(3, "float32"), updater.new_slots(), 0, 1.0)
    np.testing.assert_allclose(new, np.full(3, expected), rtol=1e-6)
