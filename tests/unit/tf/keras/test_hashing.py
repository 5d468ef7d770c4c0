"""`tf.keras.layers.Hashing` and `HashedCrossing`: at once, in models under a strategy, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf

WORDS = np.array([["red"], ["green"], ["blue"], ["red"]])
SIZES = np.array([[1], [2], [3], [1]])
layers = tf.keras.layers


def model() -> Any:
    words, sizes = tf.keras.Input((1,), dtype="string"), tf.keras.Input((1,), dtype="int64")
    crossed = layers.HashedCrossing(5, output_mode="one_hot")([words, sizes])
    hashed = layers.Hashing(4, output_mode="one_hot")(words)
    embedded = layers.Flatten()(layers.Embedding(9, 2)(layers.Hashing(9)(sizes)))
    outputs = layers.Dense(1)(layers.Concatenate()([crossed, hashed, embedded]))
    return tf.keras.Model([words, sizes], outputs)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_model_trains_as_with_the_numbers(devices: int, tmp_path: Path) -> None:
    tf.keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy([f"cpu:{i}" for i in range(devices)]).scope():
        made = model()
        made.compile("sgd", "mse")
        numbers = tf.keras.Sequential([tf.keras.Input((11,)), layers.Dense(1)])
        numbers.compile("sgd", "mse")
    embedding, kernel, bias = made.get_weights()
    numbers.set_weights([kernel, bias])
    crossed = layers.HashedCrossing(5, output_mode="one_hot")([WORDS, SIZES])
    hashed = layers.Hashing(4, output_mode="one_hot")(WORDS)
    x = np.concatenate([crossed, hashed, embedding[layers.Hashing(9)(SIZES)[:, 0]]], axis=1)
    y = np.array([[1.0], [0.0], [2.0], [1.0]], "float32")
    np.testing.assert_allclose(made.predict([WORDS, SIZES], verbose=0), numbers.predict(x, verbose=0), rtol=1e-5)
    losses = [each.evaluate(*data, verbose=0) for each, data in ((made, ([WORDS, SIZES], y)), (numbers, (x, y)))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    first = made.fit([WORDS, SIZES], y, batch_size=3, epochs=8, verbose=0).history["loss"]
    assert first[-1] < first[0]
    made.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict([WORDS, SIZES], verbose=0), made.predict([WORDS, SIZES], verbose=0))


def test_shapes_and_names() -> None:
    layer = layers.Hashing(4, output_mode="count", name="bins")
    assert layer.name == "bins"
    assert layer.compute_output_shape((None, 3)) == (None, 4)
    assert layers.HashedCrossing(5).compute_output_shape([(None, 1), (None, 1)]) == (None, 1)
    assert type(layer).from_config(layer.get_config())(WORDS).tolist() == layer(WORDS).tolist()
