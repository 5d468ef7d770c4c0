"""State that layers keep of their own: on replicas it is what one device has, or it is said what to write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

import stratagem

ops: Any = keras.ops

X = np.random.default_rng(0).normal(size=(22, 3)).astype("float32")


class Form(NamedTuple):
    """What a layer does to its variable; the share of one device's number that two replicas end with, and a word."""

    change: Callable[[Any, Any], None]
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    aggregation: str = "none"
    share: float = 1.0
    warns: bool = False


def _one(kept: Any, x: Any) -> None:
    kept.assign_add(ops.ones((), kept.dtype))


def _rows(kept: Any, x: Any) -> None:
    kept.assign_add(ops.cast(ops.shape(x)[0], kept.dtype))


def _histogram(kept: Any, x: Any) -> None:
    kinds = ops.cast(ops.clip(ops.floor(x[:, 0]) + 1, 0, 2), "int32")
    kept.assign_add(ops.sum(ops.one_hot(kinds, 3, dtype=kept.dtype), axis=0))


def _sizes(kept: Any, x: Any) -> None:
    kinds = ops.cast(ops.clip(ops.floor(x[:, 0]) + 1, 0, 2), "int32")
    kept.assign(0.9 * kept + 0.1 * ops.sum(ops.one_hot(kinds, 3), axis=0))


def _moving_mean(kept: Any, x: Any) -> None:
    kept.assign(0.9 * kept + 0.1 * ops.mean(x))


def _moving_mean_by_adding(kept: Any, x: Any) -> None:
    kept.assign_add(0.1 * (ops.mean(x) - kept))


def _squares(kept: Any, x: Any) -> None:
    kept.assign_add(ops.sum(x**2))


FORMS = {
    "steps": Form(_one, "int32"),
    "steps, float": Form(_one),
    "last mean": Form(lambda kept, x: kept.assign(ops.mean(x))),
    "moving mean": Form(_moving_mean),
    "moving mean by adding": Form(_moving_mean_by_adding),
    "moving sizes, summed": Form(_sizes, shape=(3,), aggregation="sum"),
    "rows, summed": Form(_rows, "int32", aggregation="sum"),
    "histogram, summed": Form(_histogram, "int32", (3,), "sum"),
    "squares, summed": Form(_squares, aggregation="sum"),
    "rows": Form(_rows, "int32", share=0.5),  # nothing tells a 4 that is the number of rows from another
    "squares": Form(_squares, share=0.5, warns=True),
    "moving sizes": Form(_sizes, shape=(3,), share=0.5),  # as a moving mean looks
    "steps, summed": Form(_one, "int32", aggregation="sum", share=2.0),  # as in TensorFlow
}


def kept_after_fit(form: Form, name: str, strategy: Any) -> np.ndarray:
    class Keeps(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.kept = self.add_weight(
                name="kept",
                shape=form.shape,
                dtype=form.dtype,
                initializer="zeros",
                trainable=False,
                aggregation=form.aggregation,
            )

        def call(self, x: Any) -> Any:
            form.change(self.kept, x)
            return x

    keras.utils.set_random_seed(0)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = keras.Sequential([keras.Input((3,)), Keeps(name=name.replace(" ", "_")), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)  # the last batch has 6 rows
    return np.asarray(model.layers[0].kept)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("steps", "moving mean", "squares") else pytest.param(name, marks=pytest.mark.thorough)
        for name in FORMS
    ],
)
def test_what_two_replicas_keep(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    form = FORMS[name]
    expected = kept_after_fit(form, name, None)
    found = kept_after_fit(form, name, stratagem.MirroredStrategy(["cpu:0", "cpu:1"]))
    np.testing.assert_allclose(found, form.share * expected, rtol=1e-5)
    assert ('aggregation="sum"' in capsys.readouterr().err) == form.warns


def test_an_integer_that_depends_on_the_rows_is_the_first_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    found = kept_after_fit(Form(_histogram, "int32", (3,)), "kinds", stratagem.MirroredStrategy(["cpu:0", "cpu:1"]))
    first_rows = np.concatenate([X[0:4], X[8:12], X[16:19]])
    assert found.tolist() == (2 * np.bincount(np.clip(np.floor(first_rows[:, 0]) + 1, 0, 2).astype(int))).tolist()
    said = capsys.readouterr().err
    assert "kinds/kept' according to its own rows, and the first replica's value is kept" in said
    assert said.count("kinds/kept") == 1, "also where a batch that does not divide has a program of its own"


class Adds(keras.layers.Layer):
    def __init__(self, reduce: Callable[[Any], Any]) -> None:
        super().__init__()
        self._reduce = reduce
        self.scale = self.add_weight(shape=(3,), initializer="ones")

    def call(self, x: Any) -> Any:
        x = x * self.scale
        self.add_loss(0.01 * self._reduce(x**2))
        return x


def _losses(layer: Callable[[], Any], strategy: Any) -> list[float]:
    keras.utils.set_random_seed(0)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        model = keras.Sequential([keras.Input((3,)), layer(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    return model.fit(X, X[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layer",
    [
        lambda: Adds(ops.mean),
        lambda: Adds(lambda squares: 0.5 * ops.sum(squares) / ops.cast(ops.shape(squares)[0], "float32")),
        lambda: keras.layers.Dense(2, kernel_regularizer="l2"),
        lambda: keras.layers.Dense(2, activity_regularizer="l2"),
        lambda: keras.layers.ActivityRegularization(l1=0.01),
    ],
    ids=["mean", "sum by rows", "kernel", "activity", "layer"],
)
def test_added_losses_are_those_of_one_device(layer: Callable[[], Any]) -> None:
    two = _losses(layer, stratagem.MirroredStrategy(["cpu:0", "cpu:1"]))
    np.testing.assert_allclose(two, _losses(layer, None), rtol=1e-5)


@pytest.mark.thorough
def test_an_added_sum_over_rows_counts_as_a_mean_over_replicas() -> None:
    """As in TensorFlow, a part by the number of replicas: times that number it is what one device has."""
    one = _losses(lambda: Adds(ops.sum), None)
    two = _losses(lambda: Adds(lambda x: 2 * ops.sum(x)), stratagem.MirroredStrategy(["cpu:0", "cpu:1"]))
    np.testing.assert_allclose(two, one, rtol=1e-5)
