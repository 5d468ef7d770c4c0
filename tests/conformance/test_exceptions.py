"""What depends on the number of replicas, as it does in `tf.distribute`, and what does hold for it.

BatchNorm without `synchronized=True` normalises with the statistics of each replica's rows, and Dropout drops
other units on each replica.
"""

# Keras's arguments bear the types of their defaults: `verbose` that of "auto".
# pyright: reportArgumentType=false

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from tests.conformance import inputs
from tests.conformance.runs import mirrored, reference
from tests.conformance.table import EXCEPTIONS, differences, run

MOMENTUM = 0.9
RATE = 0.25
WIDTH = 64


def _moving_statistics(x: np.ndarray, batch_size: int, epochs: int, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute BatchNorm's statistics by hand: after each step, the mean of the replicas' own, by rows."""
    mean, variance = np.zeros(x.shape[1]), np.ones(x.shape[1])
    for _ in range(epochs):
        for start in range(0, len(x), batch_size):
            batch = x[start : start + batch_size].astype("float64")
            shares = [share for share in np.array_split(batch, replicas) if len(share)]
            rows = [len(share) for share in shares]
            means, variances = [share.mean(0) for share in shares], [share.var(0) for share in shares]
            mean = MOMENTUM * mean + (1 - MOMENTUM) * np.average(means, axis=0, weights=rows)
            variance = MOMENTUM * variance + (1 - MOMENTUM) * np.average(variances, axis=0, weights=rows)
    return mean, variance


@pytest.mark.sampled(5)
@pytest.mark.parametrize("batch_size", [12, 11], ids=["divides", "uneven"])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_batch_norm_keeps_the_mean_of_the_replicas_statistics(replicas: int, batch_size: int) -> None:
    x, _ = inputs.labelled(6 * batch_size + 1)  # the last batch has one row: only one replica has statistics
    keras.utils.set_random_seed(1)
    norm = layers.BatchNormalization(momentum=MOMENTUM)
    with mirrored(replicas).scope():
        model = keras.Sequential([keras.Input(x.shape[1:]), norm])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    model.fit(x, x, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)

    mean, variance = _moving_statistics(x, batch_size, 2, replicas)
    np.testing.assert_allclose(norm.moving_mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.moving_variance, variance, rtol=1e-5)
    for variable in model.variables:
        pieces = [np.asarray(piece.data) for piece in variable.value.addressable_shards]
        assert len(pieces) == replicas
        assert all(np.array_equal(piece, pieces[0]) for piece in pieces)


def test_batch_norm_of_replicas_is_not_that_of_one_device() -> None:
    """So that the tests above are about something: the statistics of 3 rows are not those of 12."""
    x, _ = inputs.labelled(24)
    assert np.abs(_moving_statistics(x, 12, 1, 1)[1] - _moving_statistics(x, 12, 1, 4)[1]).max() > 0.01


class _Outputs(keras.metrics.Metric):
    """Keeps what the model made of each row; the targets are the rows' numbers."""

    def __init__(self, rows: int) -> None:
        super().__init__(name="outputs")
        self.rows = rows
        self.seen = self.add_weight(name="seen", shape=(rows, WIDTH), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        which = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), self.rows)
        self.seen.assign(self.seen + ops.matmul(ops.transpose(which), y_pred))

    def result(self) -> Any:
        return ops.sum(self.seen)


def _dropped(replicas: int, seed: int, batches: int = 1) -> np.ndarray:
    """Return what Dropout makes of ones: an array (batches, 8 rows, WIDTH)."""
    rows = 8 * batches
    metric = _Outputs(rows)
    with mirrored(replicas).scope():
        model = keras.Sequential([keras.Input((WIDTH,)), layers.Dropout(RATE, seed=seed)])
        # The output need not fit the targets: nothing is trained.
        model.compile(optimizer=keras.optimizers.SGD(0.0), loss=lambda y, outputs: ops.mean(outputs), metrics=[metric])
    model.fit(np.ones((rows, WIDTH), "float32"), np.arange(rows), batch_size=8, epochs=1, shuffle=False, verbose=0)
    return np.asarray(metric.seen).reshape(batches, 8, WIDTH)


def test_dropout_drops_the_asked_share_and_keeps_the_mean() -> None:
    outputs = _dropped(4, seed=11, batches=8)
    assert set(np.unique(outputs)) == {0.0, np.float32(1 / (1 - RATE))}
    # 4096 draws: the share dropped has a standard deviation of 0.007.
    assert np.mean(outputs == 0) == pytest.approx(RATE, abs=0.03)


def test_dropout_differs_between_replicas_and_between_steps() -> None:
    outputs = _dropped(4, seed=11, batches=2)
    rows = outputs.reshape(-1, WIDTH)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_dropout_is_reproducible() -> None:
    np.testing.assert_array_equal(_dropped(4, seed=11), _dropped(4, seed=11))
    assert not np.array_equal(_dropped(4, seed=11), _dropped(4, seed=12))


@pytest.mark.thorough
@pytest.mark.parametrize("name", [pytest.param("dropout", marks=pytest.mark.thorough), "dropout, uneven"])
def test_training_with_dropout_is_reproducible(name: str) -> None:
    first = run(EXCEPTIONS[name], mirrored(3))
    assert differences(run(EXCEPTIONS[name], mirrored(3)), first, None) == []
    assert differences(reference(name), first, EXCEPTIONS[name].float32) != []
