"""Calls of Keras 2, and their form in Keras 3."""

from __future__ import annotations

import libcst as cst
import pytest

from stratagem.migrate.calls import change_of, changed, difference, gone_argument


def new_text(function: str | None, method: str, text: str) -> str:
    call = cst.ensure_type(cst.parse_expression(text), cst.Call)
    change = change_of(function, method)
    assert change is not None
    return cst.Module([]).code_for_node(changed(call, change))


@pytest.mark.parametrize(
    ("function", "method", "old", "new"),
    [
        (None, "fit", "model.fit(x, nb_epoch=3)", "model.fit(x, epochs=3)"),
        (None, "fit_generator", "m.fit_generator(g, 10, 2)", "m.fit(g, steps_per_epoch=10, epochs=2)"),
        (None, "fit_generator", "m.fit_generator(generator=g)", "m.fit(x=g)"),
        (None, "predict_generator", "m.predict_generator(g, 5)", "m.predict(g, steps=5)"),
        (None, "evaluate_generator", "m.evaluate_generator(*a)", "m.evaluate(*a)"),
        (None, "compile", "m.compile('sgd', sample_weight_mode=None)", "m.compile('sgd')"),
        ("tf.keras.layers.Conv2D", "", "Conv2D(8, 3, subsample=2)", "Conv2D(8, 3, strides=2)"),
        ("tf.keras.layers.BatchNormalization", "", "B(fused=True, axis=1)", "B(axis=1)"),
    ],
)
def test_calls_that_change(function: str | None, method: str, old: str, new: str) -> None:
    assert new_text(function, method, old) == new


def test_a_call_without_old_arguments_stays_the_same_object() -> None:
    call = cst.ensure_type(cst.parse_expression("model.fit(x, epochs=3)"), cst.Call)
    change = change_of(None, "fit")
    assert change is not None
    assert changed(call, change) is call


def test_functions_without_changes() -> None:
    assert change_of(None, "predict") is None
    assert change_of("tf.keras.losses.MeanSquaredError", "") is None


@pytest.mark.parametrize(
    ("function", "keyword", "answer"),
    [
        ("tf.keras.layers.Dense", "weights", None),
        ("tf.keras.layers.Embedding", "input_length", None),
        ("tf.keras.layers.LSTM", "batch_input_shape", None),
        ("tf.keras.Input", "ragged", "pad to one length"),
    ],
)
def test_arguments_that_are_gone(function: str, keyword: str, answer: str | None) -> None:
    found = gone_argument(function, keyword)
    assert (found is None) if answer is None else (found is not None and answer in found)


def test_a_long_argument_is_shortened_in_the_difference() -> None:
    old = cst.ensure_type(cst.parse_expression(f"model.fit(x, nb_epoch={'1 + ' * 20}1)"), cst.Call)
    change = change_of(None, "fit")
    assert change is not None
    shown = difference(old, changed(old, change))
    assert shown.startswith("model.fit(nb_epoch=1 + 1")
    assert shown.count("...") == 4
