"""`fit` with weights of classes and of rows: their product, as in TensorFlow."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import stratagem


@pytest.mark.parametrize("replicas", [1, 2])
def test_weights_of_classes_and_of_rows_are_multiplied(replicas: int) -> None:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    y = np.array([0, 1, 2, 2], "float32")
    rows = np.array([1, 2, 3, 4], "float32")
    history = model.fit(
        np.ones((4, 1), "float32"), y, batch_size=4, sample_weight=rows, class_weight={0: 5, 1: 3, 2: 0.5}, verbose=0
    )
    # (1 * 2 * 3 + 4 * 3 * 0.5 + 4 * 4 * 0.5) / 4
    assert history.history["loss"] == [5.0]
