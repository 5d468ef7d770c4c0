"""Handwritten digits for the examples: 28x28 images with values from 0 to 1, and their labels.

Without a folder they are the 1,797 real digits that come inside scikit-learn, so that nothing is downloaded.
With a folder they are MNIST, from its file `mnist.npz` (or Fashion-MNIST, which has the same layout, from
`fashion_mnist.npz`); the examples take the folder from `--data` or STRATAGEM_DATA.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from stratagem.core.errors import InputError

Split = tuple[np.ndarray, np.ndarray]
"""Images of shape (n, 28, 28), float32, and labels of shape (n,), int64."""


def load(folder: str | None = None, file: str = "mnist.npz") -> tuple[Split, Split]:
    """Return (x_train, y_train), (x_test, y_test), as `keras.datasets.mnist.load_data` does.

    Args:
        folder: Where the file lies; None takes the digits of scikit-learn.
        file: `mnist.npz` or `fashion_mnist.npz`.
    """
    return _scikit_learn() if not folder else _mnist(Path(folder) / file)


def _scikit_learn() -> tuple[Split, Split]:
    """Return 1,437 digits to train on and 360 to test on, the same on every worker."""
    pixels, labels = map(np.asarray, load_digits(return_X_y=True))  # values from 0 to 16
    images = _enlarged(pixels.reshape(-1, 8, 8) / 16).astype("float32")
    labels = labels.astype("int64")
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[360:], order[:360]
    return (images[train], labels[train]), (images[test], labels[test])


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Enlarge 8x8 images to 20x20 by bilinear interpolation, and centre them in 28x28 as MNIST does."""
    positions = ((np.arange(20) + 0.5) * 8 / 20 - 0.5).clip(0, 7)
    weights = np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(8)))
    return np.pad(weights @ images @ weights.T, [(0, 0), (4, 4), (4, 4)])


def _mnist(file: Path) -> tuple[Split, Split]:
    if not file.is_file():
        raise InputError(
            f"There is no {file}.",
            "There is nothing to train on.",
            f"Name the folder that holds {file.name} (arrays x_train, y_train, x_test, y_test), or leave out "
            "--data and STRATAGEM_DATA to train on the digits inside scikit-learn.",
        )
    with np.load(file) as arrays:
        x_train, y_train, x_test, y_test = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    return (_scaled(x_train), y_train.astype("int64")), (_scaled(x_test), y_test.astype("int64"))


def _scaled(images: np.ndarray) -> np.ndarray:
    return images / np.float32(255)
