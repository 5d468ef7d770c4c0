"""Data sets and what prepares them, as programs of Keras 2 ask for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError


def lists(dataset: Any) -> list[Any]:
    return [tuple(part.tolist() for part in batch) for batch in dataset.as_numpy_iterator()]


def test_windows_of_a_series() -> None:
    """What Keras 3.15 with TensorFlow 2.21 gave for these calls."""
    x, y = np.arange(9), np.arange(9) * 10
    windows = tf.keras.utils.timeseries_dataset_from_array
    strided = windows(x, y, sequence_length=3, sequence_stride=2, sampling_rate=2, batch_size=2)
    assert lists(strided) == [([[0, 2, 4], [2, 4, 6]], [0, 20]), ([[4, 6, 8]], [40])]
    inner = windows(x, y, sequence_length=2, start_index=2, end_index=5)
    assert lists(inner) == [([[2, 3], [3, 4]], [20, 30])]
    assert lists(windows(x, y[:3], 4, batch_size=None))[-1] == ([2, 3, 4, 5], 20)
    assert [batch.tolist() for batch in windows(x, None, 8).as_numpy_iterator()] == [
        [list(range(8)), list(range(1, 9))]
    ]
    shuffled: Any = lists(windows(x, y, 2, shuffle=True, seed=3, batch_size=8))[0]
    assert sorted(shuffled[1]) == list(range(0, 80, 10)) != shuffled[1]
    assert [10 * window[0] for window in shuffled[0]] == shuffled[1]
    with pytest.raises(InputError, match="no longer than the series"):
        windows(x, y, sequence_length=10)
    assert tf.keras.preprocessing.timeseries_dataset_from_array is windows


def test_a_data_set_that_lies_here_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~/.keras/datasets`, or an absolute path."""
    arrays = {"x_train": np.ones((6, 28, 28), "uint8"), "y_train": np.arange(6)}
    arrays.update(x_test=np.zeros((2, 28, 28), "uint8"), y_test=np.arange(2))
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("downloaded"))
    monkeypatch.setattr("keras.src.utils.file_utils.get_file", lambda fname, **_: os.path.join(tmp_path, fname))
    monkeypatch.setattr("keras.src.datasets.mnist.get_file", lambda fname, **_: os.path.join(tmp_path, fname))
    from stratagem.tf.keras.datasets import mnist  # pyright: ignore[reportMissingImports]

    (x, y), (x_test, _) = mnist.load_data(path="mine.npz")
    assert (x.shape, y.tolist(), x_test.sum()) == ((6, 28, 28), [0, 1, 2, 3, 4, 5], 0)


def test_words_of_keras_2() -> None:
    tokenizer = tf.keras.preprocessing.text.Tokenizer(num_words=4, oov_token="?")
    tokenizer.fit_on_texts(["the cat sat", "the cat", "the dog"])
    sequences = tokenizer.texts_to_sequences(["the dog sat", "cat"])
    assert sequences == [[2, 1, 1], [3]]
    padded = tf.keras.preprocessing.sequence.pad_sequences(sequences, maxlen=4, padding="post")
    assert padded.tolist() == [[2, 1, 1, 0], [3, 0, 0, 0]]
    assert tf.keras.utils.to_categorical([0, 2]).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_images_of_keras_2_train_a_model() -> None:
    images = np.random.default_rng(0).random((8, 6, 6, 1)).astype("float32")
    generator = tf.keras.preprocessing.image.ImageDataGenerator(rescale=0.5, validation_split=0.25)
    flow = generator.flow(images, np.arange(8) % 2, batch_size=3, shuffle=False, subset="training")
    np.testing.assert_allclose(flow[0][0], images[2:5] * 0.5)
    model = tf.keras.Sequential([tf.keras.Input((6, 6, 1)), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(flow, epochs=2, verbose=0, workers=2, use_multiprocessing=False).history
    assert history["loss"][1] < history["loss"][0]


def test_synchronized_normalization() -> None:
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    x = np.arange(8, dtype="float32").reshape(8, 1)
    with strategy.scope():
        layer = tf.keras.layers.experimental.SyncBatchNormalization(momentum=0.0, epsilon=0.0)
        model = tf.keras.Sequential([tf.keras.Input((1,)), layer])
        model.compile(tf.keras.optimizers.SGD(0.0), "mse")
    model.fit(x, x, batch_size=8, verbose=0)
    np.testing.assert_allclose(layer.moving_variance, [x.var()], rtol=1e-5)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    assert again.synchronized
