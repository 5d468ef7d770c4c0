"""Event files of `fit`, without TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401  # sets a variable of the environment when it is first imported

import stratagem.tf as tf
from stratagem.checkpoint.summary import read_scalars
from stratagem.core.errors import InputError

X = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")


def test_what_fit_writes(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.25), "mse", metrics=["mae"])
    board = tf.keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_images=True, update_freq=2)
    history = model.fit(X, X[:, :1], 4, epochs=2, validation_data=(X, X[:, :1]), callbacks=[board], verbose=0).history
    train, validation = read_scalars(tmp_path / "train"), read_scalars(tmp_path / "validation")
    for epoch in (0, 1):
        for name in ("loss", "mae"):
            assert train[epoch][f"epoch_{name}"] == pytest.approx(history[name][epoch])
            assert validation[epoch][f"epoch_{name}"] == pytest.approx(history[f"val_{name}"][epoch])
    assert train[1]["epoch_learning_rate"] == 0.25
    every = 1 if keras.__version__.startswith("3.14.") else 2  # Keras 3.14 passes over update_freq
    assert [step for step, found in train.items() if "batch_loss" in found] == list(range(every, 7, every))
    assert validation[6]["evaluation_loss_vs_iterations"] == pytest.approx(history["val_loss"][1])
    written = b"".join(file.read_bytes() for file in (tmp_path / "train").iterdir())
    assert b"/kernel/histogram" in written
    assert b"/kernel/image" in written
    assert "tensorflow" not in sys.modules
    assert isinstance(board, keras.callbacks.TensorBoard)  # what workers other than the chief leave out


def test_embeddings_are_refused() -> None:
    with pytest.raises(InputError, match="add_embedding"):
        tf.keras.callbacks.TensorBoard(embeddings_freq=1)
