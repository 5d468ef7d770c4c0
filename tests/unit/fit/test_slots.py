"""Slots of compression: variables of the optimizer that files of Keras do not have."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.compression.residuals import Slot
from stratagem.fit.slots import Places, add_slots, places_of_slots, warn_without_slots

STRATEGY: Any = SimpleNamespace(
    compression=SimpleNamespace(slots=lambda shape: [Slot("left", shape, True), Slot("basis", shape[-1:], False)])
)


def optimizer_of(*variables: Any) -> Any:
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    optimizer.build(list(variables))
    return optimizer


def test_slots_are_added_once_and_found_again() -> None:
    weight, short = keras.Variable(np.ones((2, 3), "float32")), keras.Variable(np.ones(2), dtype="float16")
    optimizer = optimizer_of(weight, short)
    before = len(optimizer.variables)
    add_slots(STRATEGY, optimizer)
    add_slots(STRATEGY, optimizer)
    left, basis = optimizer.variables[before:]  # none of the short one
    assert (tuple(left.shape), tuple(basis.shape)) == ((2, 3), (3,))
    assert left.path.endswith("left")
    variables = [basis, weight, *optimizer.variables[:before], left]
    places = places_of_slots(optimizer, [short, weight], variables)
    assert places == Places([[], [len(variables) - 1, 0]], None)


def test_files_are_those_of_an_optimizer_without_slots() -> None:
    weight = keras.Variable(np.ones(2, "float32"))
    optimizer, plain = optimizer_of(weight), optimizer_of(keras.Variable(np.ones(2, "float32")))
    add_slots(STRATEGY, optimizer)
    optimizer.apply([np.ones(2, "float32")])
    number = len(optimizer.variables)
    store: dict[str, Any] = {}
    optimizer.save_own_variables(store)
    assert len(store) == len(plain.variables) == number - 2
    plain.load_own_variables(store)
    np.testing.assert_array_equal(plain.variables[2].value, [-0.5, -0.5])
    optimizer.apply([np.ones(2, "float32")])
    optimizer.load_own_variables(store)
    np.testing.assert_array_equal(optimizer.variables[2].value, [-0.5, -0.5])
    assert len(optimizer.variables) == number
    assert "save_own_variables" not in vars(plain)


def test_its_methods_do_not_keep_an_optimizer_alive() -> None:
    optimizer = optimizer_of(keras.Variable(np.ones(2, "float32")))
    add_slots(STRATEGY, optimizer)
    method, freed = optimizer.save_own_variables, weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert freed() is None
    assert callable(method)


def test_an_optimizer_without_slots_warns() -> None:
    optimizer = optimizer_of(keras.Variable(np.ones(2, "float32")))
    with pytest.warns(UserWarning, match=r"(?s)stateless_apply of optimizer '(?i:sgd).*travel uncompressed"):
        warn_without_slots(STRATEGY, optimizer)
    add_slots(STRATEGY, optimizer)
    warn_without_slots(STRATEGY, optimizer)
    warn_without_slots(SimpleNamespace(compression=None), keras.optimizers.SGD())  # pyright: ignore[reportArgumentType]
