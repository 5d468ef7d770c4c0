"""Handwritten digits for the examples: 28x28 images with values from 0 to 1, and their labels.

Without a folder they are the 1,797 real digits that come inside Stratagem, so that nothing is downloaded.
With a folder they are MNIST, from its file `mnist.npz` (or Fashion-MNIST, which has the same layout, from
`fashion_mnist.npz`); the examples take the folder from `--data` or STRATAGEM_DATA.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stratagem.core.errors import InputError
from stratagem.demo import digits
from stratagem.demo.digits import Split


def load(folder: str | None = None, file: str = "mnist.npz") -> tuple[Split, Split]:
    """Return (x_train, y_train), (x_test, y_test), as `keras.datasets.mnist.load_data` does.

    Args:
        folder: Where the file lies; None takes the digits inside Stratagem.
        file: `mnist.npz` or `fashion_mnist.npz`.
    """
    return digits.load() if not folder else _mnist(Path(folder) / file)


def _mnist(file: Path) -> tuple[Split, Split]:
    if not file.is_file():
        raise InputError(
            f"There is no {file}.",
            "There is nothing to train on.",
            f"Name the folder that holds {file.name} (arrays x_train, y_train, x_test, y_test), or leave out "
            "--data and STRATAGEM_DATA to train on the digits inside Stratagem.",
        )
    with np.load(file) as arrays:
        x_train, y_train, x_test, y_test = (arrays[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    return (_scaled(x_train), y_train.astype("int64")), (_scaled(x_test), y_test.astype("int64"))


def _scaled(images: np.ndarray) -> np.ndarray:
    return images / np.float32(255)
