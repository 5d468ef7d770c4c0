"""Layers whose objects are Keras's own, made by names of `stratagem.tf.keras.layers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
import stratagem.tf as tf
from stratagem.core.errors import InputError
from stratagem.data import Dataset

X = np.random.default_rng(0).normal(3, 2, size=(10, 2)).astype("float32")


class Numbered(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = X[4 * index : 4 * index + 4]
        return rows, rows[:, 0]


def of_grain() -> Any:
    return pytest.importorskip("grain").MapDataset.source(X).batch(4)


DATA: dict[str, Callable[[], Any]] = {
    "array": lambda: X,
    "numbers": lambda: X.tolist(),
    "dataset": lambda: Dataset.from_tensor_slices((X, X)).shuffle(10).batch(4),
    "rows": lambda: Dataset.from_tensor_slices(X),
    "PyDataset": Numbered,
    "generator": lambda: (X[start : start + 4] for start in (0, 4, 8)),
    "arrays": lambda: [X[:7], X[7:]],
    "grain": of_grain,
}


@pytest.mark.parametrize("name", DATA)
def test_adapt_to_all_that_yields_arrays(name: str) -> None:
    normalization, bins = tf.keras.layers.Normalization(), tf.keras.layers.Discretization(num_bins=3)
    normalization.adapt(DATA[name]())
    bins.adapt(DATA[name]())
    expected = keras.layers.Normalization()
    expected.adapt(X)
    np.testing.assert_allclose(normalization.adapt_mean, expected.adapt_mean, rtol=1e-6)
    np.testing.assert_allclose(normalization.adapt_variance, expected.adapt_variance, rtol=1e-5)
    np.testing.assert_allclose(normalization(X), expected(X), rtol=1e-4, atol=1e-5)
    quantiles = keras.layers.Discretization(num_bins=3)
    quantiles.reset_state()
    quantiles.update_state(X)
    quantiles.finalize_state()
    assert list(bins.bin_boundaries) == pytest.approx(list(quantiles.bin_boundaries))
    assert np.searchsorted(np.sort(X.ravel()), bins.bin_boundaries).tolist() == [6, 13]


@pytest.mark.parametrize("axis", [None, 1, (1, 2), (-1, 1)])
def test_axes_of_normalization(axis: Any) -> None:
    images = np.random.default_rng(1).normal(size=(6, 2, 3)).astype("float32")
    found, expected = tf.keras.layers.Normalization(axis=axis), keras.layers.Normalization(axis=axis)
    found.adapt(iter([images[:4], images[4:]]))
    expected.adapt(images)
    np.testing.assert_allclose(found.adapt_mean, expected.adapt_mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found(images), expected(images), rtol=1e-4, atol=1e-5)


def test_steps_end_what_has_no_end() -> None:
    layer = tf.keras.layers.Normalization()
    with pytest.raises(InputError, match=r"without an end(.|\n)*steps="):
        layer.adapt(Dataset.from_tensor_slices(X).repeat().batch(5))
    layer.adapt(Dataset.from_tensor_slices(X).repeat().batch(5), steps=2)
    np.testing.assert_allclose(layer.adapt_mean, X.mean(axis=0), rtol=1e-6)


def test_what_cannot_be_adapted_to() -> None:
    shared = stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).experimental_distribute_dataset(
        Dataset.from_tensor_slices(X).batch(4)
    )
    for data, message in (
        (shared, "Give adapt the dataset itself"),
        (iter(()), "without elements"),
        (iter([X, X[:, :1]]), r"a batch of shape \(10, 1\), after others with means of shape \(2,\)"),
    ):
        with pytest.raises(InputError, match=message):
            tf.keras.layers.Normalization().adapt(data)
    with pytest.raises(InputError, match="has nothing to learn"):
        tf.keras.layers.Normalization(mean=0.0, variance=1.0).adapt(X)
    with pytest.raises(ValueError, match="has nothing to learn"):
        tf.keras.layers.Discretization(bin_boundaries=[0.0]).adapt(X)


def test_objects_are_those_of_keras(tmp_path: Path) -> None:
    layer = tf.keras.layers.Normalization()
    layer.adapt(DATA["dataset"]())
    assert type(layer) is keras.layers.Normalization
    model = keras.Sequential([tf.keras.layers.InputLayer(input_shape=(2,)), layer])
    assert [isinstance(each, tf.keras.layers.Normalization) for each in (layer, keras.layers.Dense(1))] == [True, False]
    model.save(tmp_path / "model.keras")
    again: Any = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(X), layer(X))


def test_a_subclass_of_a_program() -> None:
    class Own(tf.keras.layers.Normalization):
        def call(self, inputs: Any) -> Any:
            return -super().call(inputs)

    layer = Own()
    layer.adapt(DATA["dataset"]())
    assert type(layer) is Own
    assert not isinstance(tf.keras.layers.Normalization(), Own)
    np.testing.assert_allclose(np.asarray(layer(X)).mean(axis=0), [0.0, 0.0], atol=1e-6)
