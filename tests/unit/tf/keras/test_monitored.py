"""Callbacks that watch a metric of the program's own without `mode=`: Keras 2 went by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf


class Given(tf.keras.Model):
    """A model whose epochs end with given numbers under a name that Keras does not know."""

    def __init__(self, name: str, numbers: list[float]) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
        self.number = tf.keras.metrics.Mean(name=name)
        self.numbers = tf.Variable(numbers, trainable=False)
        self.turn = tf.Variable(0, trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.number.update_state(self.numbers[self.turn])
        self.turn.assign_add(1)
        return {self.number.name: self.number.result()}


def trained(name: str, numbers: list[float], callback: Any) -> tuple[Any, Any]:
    x = np.ones((2, 1), "float32")
    model = Given(name, numbers)
    model.compile(tf.keras.optimizers.SGD(1.0))
    return model, model.fit(x, x, epochs=len(numbers), callbacks=[callback], verbose=0)


@pytest.mark.parametrize(("name", "rate"), [("f1", 0.25), ("my_acc", 1.0)])
def test_reduce_lr_on_plateau(name: str, rate: float) -> None:
    # Rising numbers are worse and worse for "f1", which Keras 2 took for a loss, and better and better for "my_acc".
    plateau = tf.keras.callbacks.ReduceLROnPlateau(monitor=name, factor=0.5, patience=1)
    model, _ = trained(name, [0.1, 0.2, 0.3], plateau)
    assert float(model.optimizer.learning_rate) == rate
    assert isinstance(plateau, tf.keras.callbacks.ReduceLROnPlateau)


@pytest.mark.parametrize(("name", "epochs"), [("f1", 2), ("my_auc", 3)])
def test_early_stopping(name: str, epochs: int) -> None:
    _, history = trained(name, [0.1, 0.2, 0.3], tf.keras.callbacks.EarlyStopping(monitor=name, patience=1))
    assert len(history.history[name]) == epochs


@pytest.mark.parametrize(("name", "files"), [("f1", ["1.weights.h5"]), ("fmeasure", ["1.weights.h5", "2.weights.h5"])])
def test_model_checkpoint(name: str, files: list[str], tmp_path: Path) -> None:
    saving = tf.keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.weights.h5", monitor=name, save_best_only=True, save_weights_only=True
    )
    trained(name, [0.1, 0.2], saving)
    assert sorted(file.name for file in tmp_path.iterdir()) == files


def test_another_error_is_not_hidden() -> None:
    class Failing(tf.keras.callbacks.EarlyStopping):
        def get_monitor_value(self, logs: Any) -> Any:
            raise ValueError("of the program")

    with pytest.raises(ValueError, match="of the program"):
        trained("loss_of_mine", [0.1], Failing(monitor="loss_of_mine", mode="min"))
