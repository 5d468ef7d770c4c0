"""Data of the models, and the shapes in which it is handed to `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from tests.conformance.models import CLASSES, FEATURES, LENGTH, WORDS

from stratagem.data import Dataset

Tree = Any
Examples = Callable[[int], tuple[Tree, Tree]]
"""Makes inputs and targets of so many rows."""

BATCH = 12
"""Divides by 1, 2, 3 and 4 replicas."""

EPOCHS = 3


def _generator() -> np.random.Generator:
    return np.random.default_rng(20)


def _features(rows: int) -> np.ndarray:
    return _generator().normal(size=(rows, FEATURES)).astype(keras.config.floatx())


def _classes(rows: int) -> np.ndarray:
    scores = _features(rows)[:, :3] @ np.array([1.0, 2.0, -1.0])
    return np.digitize(scores, [-1.0, 1.0]).astype("int32")


def labelled(rows: int) -> tuple[Tree, Tree]:
    return _features(rows), _classes(rows)


def binary(rows: int) -> tuple[Tree, Tree]:
    return _features(rows), (_classes(rows)[:, None] > 0).astype(keras.config.floatx())


def one_hot(rows: int) -> tuple[Tree, Tree]:
    return _features(rows), np.eye(CLASSES, dtype=keras.config.floatx())[_classes(rows)]


def regression(rows: int) -> tuple[Tree, Tree]:
    x = _features(rows)
    return x, np.maximum(x[:, :2], 0)


def images(rows: int) -> tuple[Tree, Tree]:
    pictures = _generator().normal(size=(rows, 8, 8, 1)).astype(keras.config.floatx())
    return pictures, (pictures.mean(axis=(1, 2, 3)) > 0).astype("int32")


def sentences(rows: int) -> tuple[Tree, Tree]:
    """Sentences of 1 to LENGTH words, filled up with zeros; the targets are the words themselves."""
    generator = _generator()
    words = generator.integers(1, WORDS, (rows, LENGTH)).astype("int32")
    words[np.arange(LENGTH)[None] >= generator.integers(1, LENGTH + 1, rows)[:, None]] = 0
    return words, words


def labelled_sentences(rows: int) -> tuple[Tree, Tree]:
    words, _ = sentences(rows)
    return words, (words.sum(1) % CLASSES).astype("int32")


def numbers_and_words(rows: int) -> tuple[Tree, Tree]:
    x = _features(rows)
    return {"numbers": x, "words": sentences(rows)[0]}, {"kind": _classes(rows), "size": x[:, :1]}


def weights(rows: int) -> np.ndarray:
    """Sample weights; some rows count nothing."""
    values = np.linspace(0.1, 2.0, rows).astype(keras.config.floatx())
    values[::5] = 0
    return values


# Shapes: arguments of `fit`, given the examples and whether plain Keras trains --------------------


def tail(examples: Examples, plain: bool) -> dict[str, Any]:
    """Batches that divide, and a last one of 5 rows that does not."""
    x, y = examples(6 * BATCH + 5)
    return {"x": x, "y": y, "batch_size": BATCH, "epochs": EPOCHS}


def even(examples: Examples, plain: bool) -> dict[str, Any]:
    x, y = examples(7 * BATCH)
    return {"x": x, "y": y, "batch_size": BATCH, "epochs": EPOCHS}


def uneven(examples: Examples, plain: bool) -> dict[str, Any]:
    """No batch divides by 2, 3 or 4; the last one has a single row, so all replicas but one have none."""
    x, y = examples(6 * 11 + 1)
    return {"x": x, "y": y, "batch_size": 11, "epochs": EPOCHS}


def sample_weighted(examples: Examples, plain: bool) -> dict[str, Any]:
    arguments = uneven(examples, plain)
    return {**arguments, "sample_weight": weights(6 * 11 + 1)}


def class_weighted(examples: Examples, plain: bool) -> dict[str, Any]:
    return {**uneven(examples, plain), "class_weight": {0: 0.5, 1: 2.0, 2: 1.0}}


def sample_weighted_outputs(examples: Examples, plain: bool) -> dict[str, Any]:
    rows = 6 * 11 + 1
    return {**uneven(examples, plain), "sample_weight": {"kind": weights(rows), "size": weights(rows)[::-1].copy()}}


def validated(examples: Examples, plain: bool) -> dict[str, Any]:
    x, y = examples(23)
    validation = {"validation_data": (x, y, weights(23)), "validation_batch_size": 7, "validation_steps": 3}
    return {**tail(examples, plain), **validation, "validation_freq": 2, "epochs": 4}


def validation_split(examples: Examples, plain: bool) -> dict[str, Any]:
    x, y = examples(100)
    return {"x": x, "y": y, "batch_size": BATCH, "epochs": EPOCHS, "validation_split": 0.21}


def overflowing(examples: Examples, plain: bool) -> dict[str, Any]:
    """One row in the third batch of each epoch, the last of its batch, has a gradient too large for float16."""
    arguments = tail(examples, plain)
    x = arguments["x"].copy()
    x[3 * BATCH - 1] *= 1e4
    return {**arguments, "x": x}


def _batches(examples: Examples, rows: int, batch_size: int, *, shuffle: bool) -> Dataset:
    dataset = Dataset.from_tensor_slices(examples(rows))
    if shuffle:
        dataset = dataset.shuffle(30, seed=5)
    return dataset.batch(batch_size)


def _epochs_of(dataset: Dataset, epochs: int) -> Iterator[Tree]:
    """Yield what `dataset` yields, epoch after epoch, for plain Keras: it knows nothing of our datasets."""
    for _ in range(epochs):
        yield from dataset.as_numpy_iterator()


def shuffled_dataset(examples: Examples, plain: bool) -> dict[str, Any]:
    dataset = _batches(examples, 67, 11, shuffle=True)
    if plain:
        return {"x": _epochs_of(dataset, EPOCHS), "steps_per_epoch": 7, "epochs": EPOCHS}
    return {"x": dataset, "epochs": EPOCHS}


def repeated_dataset(examples: Examples, plain: bool) -> dict[str, Any]:
    """Epochs of 5 steps from a dataset of 7 batches without end: an epoch ends in the midst of the data."""
    dataset = _batches(examples, 67, 11, shuffle=True).repeat()
    x = _epochs_of(dataset, 1) if plain else dataset
    return {"x": x, "steps_per_epoch": 5, "epochs": 4}


def generated(examples: Examples, plain: bool) -> dict[str, Any]:
    """A Python generator whose batches have many sizes."""

    def batches() -> Iterator[Tree]:
        x, y = examples(90)
        while True:
            for start, rows in ((0, 12), (12, 7), (19, 1), (20, 12), (32, 2), (34, 12), (46, 5)):
                yield keras.tree.map_structure(lambda leaf, s=start, r=rows: leaf[s : s + r], (x, y))

    return {"x": batches(), "steps_per_epoch": 7, "epochs": EPOCHS}
