"""The digits inside the package: the very numbers of the source, and the split of every example."""

from __future__ import annotations

import hashlib

import numpy as np

from stratagem.demo import digits


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def test_they_are_the_digits_of_uci() -> None:
    """Digests of `sklearn.datasets.load_digits` as bytes."""
    images, labels = digits.read()
    assert (images.dtype, labels.dtype, images.shape, labels.shape) == ("uint8", "uint8", (1797, 8, 8), (1797,))
    assert (digest(images), digest(labels)) == ("8f26b2bd9d135c25", "8ba4f891220f5e4c")
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_split() -> None:
    (x_train, y_train), (x_test, y_test) = digits.load()
    assert (x_train.shape, x_test.shape) == ((1437, 28, 28), (360, 28, 28))
    assert (x_train.dtype, y_train.dtype) == (np.float32, np.int64)
    assert (x_train.min(), x_train.max(), x_train[:, :4].max()) == (0.0, 1.0, 0.0)
    assert y_test[:10].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]
    assert digest(np.concatenate([y_train, y_test])) == "b9e0755ffe1e919e"
    assert len(np.unique(np.concatenate([x_train, x_test]).reshape(1797, -1), axis=0)) == 1797
