"""Handwritten digits that come inside the package: 1,797 real images of 8x8 pixels (`DIGITS.md` says whose)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

Split = tuple[np.ndarray, np.ndarray]
"""Images of shape (n, 28, 28), float32, and labels of shape (n,), int64."""

_FILE: Final = Path(__file__).with_name("digits.npz")
_NUM_TESTED: Final = 360


def read() -> tuple[np.ndarray, np.ndarray]:
    """Return all digits as they were scanned.

    Returns:
        Images of shape (1797, 8, 8) with values from 0 to 16, and labels of shape (1797,), both uint8.

    Example:
        >>> images, labels = read()
        >>> images.shape, int(images.max()), labels[:5].tolist()
        ((1797, 8, 8), 16, [0, 1, 2, 3, 4])
    """
    with np.load(_FILE) as arrays:
        return arrays["images"], arrays["labels"]


def load() -> tuple[Split, Split]:
    """Return (x_train, y_train), (x_test, y_test) in the form of MNIST, as `keras.datasets.mnist.load_data` does.

    Returns:
        1,437 digits to train on and 360 to test on, with values from 0 to 1, the same on every worker.

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load()
        >>> x_train.shape, x_test.shape, float(x_train.max())
        ((1437, 28, 28), (360, 28, 28), 1.0)
    """
    pixels, labels = read()
    images = _enlarged(pixels / 16).astype("float32")
    labels = labels.astype("int64")
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[_NUM_TESTED:], order[:_NUM_TESTED]
    return (images[train], labels[train]), (images[test], labels[test])


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Enlarge 8x8 images to 20x20 by bilinear interpolation, and centre them in 28x28 as MNIST does."""
    positions = ((np.arange(20) + 0.5) * 8 / 20 - 0.5).clip(0, 7)
    weights = np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(8)))
    return np.pad(weights @ images @ weights.T, [(0, 0), (4, 4), (4, 4)])
