"""Models that Keras treats in a way of their own, held against plain Keras."""

# Keras's arguments bear the types of their defaults: `verbose` that of "auto".
# pyright: reportArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import stratagem
from stratagem.core.errors import UsageError
from stratagem.data import Dataset


def _scope(replicas: int | None) -> Any:
    if replicas is None:
        return contextlib.nullcontext()
    return stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope()


def _rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


class _CountsCalls(keras.Sequential):
    steps = 0

    def train_step(self, *args: Any) -> Any:
        type(self).steps += 1
        return super().train_step(*args)


def test_without_jit_steps_of_several_replicas_are_compiled() -> None:
    """Keras leaves `jit_compile` off where a layer like RandomZoom asks for it, which matters to TensorFlow alone.

    Operation by operation on several devices, the first step of a small network takes minutes.
    """
    _CountsCalls.steps = 0
    with _scope(2):
        model = _CountsCalls([keras.Input((4, 4, 1)), layers.RandomZoom(0.2), layers.Flatten(), layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    assert not model.jit_compile
    history = model.fit(_rows(12, 4, 4, 1), _rows(12, 1), batch_size=4, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert _CountsCalls.steps == 1


def _padded(lengths: tuple[int, ...]) -> Dataset:
    def sequences() -> Iterator[tuple[Any, Any]]:
        for length in lengths:
            yield _rows(length, 3), np.float32([length])

    signature = (stratagem.data.TensorSpec((None, 3)), stratagem.data.TensorSpec((1,)))
    return Dataset.from_generator(sequences, output_signature=signature).padded_batch(2)


def _convolved(replicas: int | None) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    with _scope(replicas):
        model = keras.Sequential([layers.Conv1D(2, 3), layers.GlobalMaxPooling1D(), layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    batches = _padded((5, 4, 7, 6))
    if replicas is None:
        for batch in batches.as_numpy_iterator():
            model.train_on_batch(*batch)
    else:
        model.fit(batches, steps_per_epoch=2, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_length_that_differs_between_batches(replicas: int) -> None:
    """The model is built for a batch as it comes: for sequences of length 1 a window of 3 does not fit."""
    for value, expected in zip(_convolved(replicas), _convolved(None), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def _stateful(replicas: int | None) -> tuple[list[np.ndarray], np.ndarray]:
    keras.utils.set_random_seed(1)
    with _scope(replicas):
        model = keras.Sequential([keras.Input((5, 3), batch_size=4), layers.GRU(2, stateful=True), layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
    model.fit(_rows(8, 5, 3), _rows(8, 1), batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model.get_weights(), model.predict(_rows(8, 5, 3), batch_size=4, verbose=0)


def test_a_stateful_rnn_on_one_replica() -> None:
    (weights, outputs), (expected, expected_outputs) = _stateful(1), _stateful(None)
    for value, other in zip([*weights, outputs], [*expected, expected_outputs], strict=True):
        np.testing.assert_array_equal(value, other)


def test_a_stateful_rnn_on_several_replicas_is_refused() -> None:
    with pytest.raises(UsageError, match=r"(?s)'gru.*' keeps a state for each row.*stateful=False"):
        _stateful(2)


def _compared(replicas: int | None) -> tuple[list[np.ndarray], list[float]]:
    keras.utils.set_random_seed(1)
    rows = _rows(14, 6)
    with _scope(replicas):
        x = keras.Input((6,))
        overlap, embedding = layers.Dense(4, activation="sigmoid")(x), layers.UnitNormalization()(layers.Dense(3)(x))
        model = keras.Model(x, [overlap, embedding])
        losses = [keras.losses.Dice(), keras.losses.Circle(gamma=2.0)]
        model.compile(optimizer=keras.optimizers.SGD(0.5), loss=losses)
    targets = [(rows[:, :4] > 0).astype("float32"), (rows[:, 0] > 0).astype("int32")]
    history = model.fit(rows, targets, batch_size=7, epochs=2, shuffle=False, verbose=0).history
    return model.get_weights(), history["loss"]


@pytest.mark.thorough
def test_losses_that_look_at_all_rows_together() -> None:
    """The overlap of a batch is no mean over its rows, and pairs of rows lie on different replicas."""
    (weights, losses), (expected, expected_losses) = _compared(2), _compared(None)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for value, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-6)
