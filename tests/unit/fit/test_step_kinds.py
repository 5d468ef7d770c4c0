"""The kinds of steps, and the groups of variables in their state."""

from __future__ import annotations

import keras
import numpy as np

from stratagem.fit.step_kinds import KIND_OF, PREDICT, TEST, TRAIN, Values, group_variables


def test_values_are_a_sequence_that_keras_does_not_track() -> None:
    values = Values([1.0, 2.0, 3.0])
    assert (len(values), values[1], values[-1], list(values)) == (3, 2.0, 3.0, [1.0, 2.0, 3.0])
    assert values[:2] == [1.0, 2.0]
    assert not isinstance(values, list | tuple | dict)


def test_groups_hold_all_variables_once() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), keras.layers.BatchNormalization()])
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((2, 2)), np.ones((2, 1)))
    groups = {group: group_variables(model, group) for group in TRAIN.groups}
    assert [len(groups[group]) for group in TRAIN.groups] == [4, 2, 10, 2]
    everything = [id(variable) for group in groups.values() for variable in group]
    assert len(everything) == len(set(everything))
    assert groups["optimizer_variables"] == model.optimizer.variables


def test_each_method_of_a_model_has_its_kind() -> None:
    assert {name: kind.method for name, kind in KIND_OF.items()} == {
        "fit": "train_step",
        "train_on_batch": "train_step",
        "evaluate": "test_step",
        "test_on_batch": "test_step",
        "predict": "predict_step",
        "predict_on_batch": "predict_step",
    }
    assert [kind.trains for kind in (TRAIN, TEST, PREDICT)] == [True, False, False]
