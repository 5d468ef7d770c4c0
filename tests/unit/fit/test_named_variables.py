"""Names of a model's variables: the same in each run, and those that messages show."""

from __future__ import annotations

from typing import Any

import keras

from stratagem.fit.named_variables import named_variables, shown_names


def made(name: str) -> Any:
    layers = [keras.layers.Dense(2), keras.layers.Dense(1), keras.layers.Dense(1, name=name)]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(momentum=0.5))
    model.optimizer.build(model.trainable_variables)
    return model


def test_names_are_the_same_however_many_layers_a_process_has_made() -> None:
    first, second = made("top_7"), made("top_7")
    names = [name for name, _ in named_variables(first)]
    assert names == [name for name, _ in named_variables(second)]
    assert names[:6] == [
        "trainable_variables/0/sequential/dense/kernel",
        "trainable_variables/1/sequential/dense/bias",
        "trainable_variables/2/sequential/dense/kernel",
        "trainable_variables/3/sequential/dense/bias",
        "trainable_variables/4/sequential/top/kernel",
        "trainable_variables/5/sequential/top/bias",
    ]
    assert [variable for _, variable in named_variables(first)][:6] == first.trainable_variables


def test_messages_show_the_paths_of_this_process() -> None:
    model = made("top_7")
    shown = shown_names(model)
    paths = [variable.path for variable in model.trainable_variables]
    assert list(shown.values())[:6] == [f"trainable_variables/{i}/{path}" for i, path in enumerate(paths)]
    assert paths[4].endswith("/top_7/kernel")
    assert len(set(paths)) == 6
    assert list(shown) == [name for name, _ in named_variables(model)]
