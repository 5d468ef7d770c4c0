"""What a model exchanges is counted, and its step timed."""

from __future__ import annotations

import itertools
from pathlib import Path

import keras
import pytest

from stratagem.core.errors import InputError
from stratagem.plan import models


def network(**options: object) -> keras.Model:
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, **options)(inputs)
    frozen = keras.layers.Dense(5, trainable=False)(hidden)
    return keras.Model(inputs, frozen)


def test_gradients_of_trainable_variables_are_counted() -> None:
    # A kernel of 4 x 3 and a bias of 3, of 4 bytes each; under mixed precision variables stay float32.
    assert models.gradient_bytes(network()) == 4 * 15
    assert models.gradient_bytes(network(dtype="mixed_bfloat16")) == 4 * 15
    assert models.gradient_bytes(network(dtype="bfloat16")) == 2 * 15


def test_a_saved_model(tmp_path: Path) -> None:
    network().save(tmp_path / "model.keras")
    assert models.gradient_bytes(models.model_of(str(tmp_path / "model.keras"))) == 60


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("missing.keras", "MODEL missing.keras: no such file."),
        ("keras:Sequential", "MODEL keras:Sequential: a model that is not built."),
        ("builtins:dict", "MODEL builtins:dict: dict, which is not a model."),
        ("train", "MODEL train: it does not name a module and a function."),
    ],
)
def test_what_is_no_model(place: str, found: str) -> None:
    with pytest.raises(InputError) as raised:
        models.model_of(place)
    assert str(raised.value).startswith(found)
    assert "train.py:make_model" in str(raised.value)


def test_steps_are_timed_by_the_clock() -> None:
    # A second passes at each look at the clock: begin 0; six steps end at 2, 4 ... 12, then there is a look after each,
    # and after the ninth it is 22, more than the 20 that measuring may take.
    model = network()
    ticks = itertools.count()
    timed = models.time_step(model, 8, clock=lambda: float(next(ticks)))
    assert (timed.seconds, timed.spread) == (1.0, 0.0)
    assert int(model.optimizer.iterations.value) == 9


def test_models_of_several_inputs_and_of_numbers() -> None:
    words, weights = keras.Input((6,), dtype="int32"), keras.Input((1,))
    looked_up = keras.layers.Flatten()(keras.layers.Embedding(10, 2)(words))
    model = keras.Model([words, weights], keras.layers.Dense(1)(keras.layers.Concatenate()([looked_up, weights])))
    assert models.time_step(model, 4).seconds > 0


def test_rows_of_any_length_cannot_be_made() -> None:
    inputs = keras.Input((None, 4), name="words")
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(inputs))
    with pytest.raises(InputError) as raised:
        models.time_step(model, 4)
    assert "The input words has the shape (None, None, 4)." in str(raised.value)
    assert "--step-ms" in str(raised.value)
