"""Variables and optimizers of Keras, taken apart and made again."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from stratagem.core.errors import UsageError
from stratagem.ps.compat import (
    HeldElsewhere,
    accumulates,
    beside,
    clipped,
    fresh_optimizer,
    held_elsewhere,
    optimizer_recipe,
    slots_by_variable,
    value_held,
)


class Noted(HeldElsewhere):
    held: list[Any]

    def pulled(self) -> Any:
        return self.held[-1]

    def pushed(self, value: Any) -> None:
        self.held.append(value)


def test_a_recipe_leaves_clipping_and_the_rate_to_workers() -> None:
    optimizer = keras.optimizers.AdamW(0.3, clipnorm=2.0, beta_1=0.5, gradient_accumulation_steps=3)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    recipe = optimizer_recipe(optimizer)
    made = fresh_optimizer(recipe)
    assert (type(made), made.beta_1, made.clipnorm, float(made.learning_rate)) == (keras.optimizers.AdamW, 0.5, None, 0)
    bias, kernel = (keras.Variable(0.0, name=name) for name in ("bias", "kernel"))
    made.build([bias, kernel])
    assert [made._use_weight_decay(each) for each in (bias, kernel)] == [False, True]
    assert accumulates(recipe)
    assert not accumulates(optimizer_recipe(keras.optimizers.SGD()))


def test_variables_that_only_this_process_knows_cannot_be_left_out() -> None:
    optimizer = keras.optimizers.AdamW(0.3)
    optimizer.exclude_from_weight_decay(var_list=[keras.Variable(0.0, name="bias")])
    with pytest.raises(UsageError, match=r"(?s)would apply weight decay to these.*var_names="):
        optimizer_recipe(optimizer)


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    optimizer = keras.optimizers.SGD(clipvalue=1.5, loss_scale_factor=4.0)
    assert [np.asarray(each).tolist() for each in clipped(optimizer, [np.array([4.0, 8.0])])] == [[1.0, 1.5]]


def test_slots_are_those_of_each_variable() -> None:
    weight, bias = keras.Variable(np.ones((2, 3))), keras.Variable(np.ones(3))
    optimizer = keras.optimizers.Adam()
    assert slots_by_variable(optimizer) == []
    optimizer.build([weight, bias])
    found = slots_by_variable(optimizer)
    assert found[0][0] is weight
    assert [[slot.shape for slot in slots] for _, slots in found] == [[(2, 3)] * 2, [(3,)] * 2]
    assert all(any(slot is each for each in optimizer.variables) for _, slots in found for slot in slots)


def test_a_variable_gives_its_value_up() -> None:
    variable = keras.Variable(1.0, name="weight")
    turned = held_elsewhere(variable, Noted, {"held": [5.0]})
    assert turned is variable
    assert value_held(turned) is None
    turned.assign(7.0)
    assert [float(value) for value in turned.held] == [5.0, 7.0]
    assert float(turned.value) == 7.0
    other = beside(turned, Noted, "rate", (2, 3), "int32", {"held": []})
    assert (other.path, other.shape, other.stored_dtype, other.trainable) == ("rate", (2, 3), "int32", False)
