"""Programs written for TensorFlow, run with one line changed: `import tensorflow as tf`.

`lay` writes the changed copy; `data_at_hand` lets `load_data` of Keras's data sets answer without a download. As a
script this file runs a program in a process of its own, from a seed: `python translated.py 7 program.py`.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import keras
import numpy as np

from stratagem.demo import digits

ROWS: Final = "TRANSLATED_ROWS"
"""Environment variable: how many rows of each data set to give, where a test needs fewer than all."""

_DATA: Final = os.environ.get("STRATAGEM_DATA") or None
HAS_MNIST: Final = _DATA is not None
"""Whether the data are MNIST; else they are the 1,797 digits inside Stratagem, too few for numbers of whole epochs."""

Split = tuple[np.ndarray, np.ndarray]
"""Images of shape (rows, 28, 28) and labels of shape (rows,), both uint8."""


def lay(program: Path, folder: Path, changes: Mapping[str, str] | None = None) -> Path:
    """Copy a program and the modules beside it into a folder, with its imports of TensorFlow changed.

    Args:
        program: A file that imports `tensorflow`.
        folder: Where the copy goes; `/tmp/` in the program becomes this folder.
        changes: Further texts to put in place of others: data, sizes, addresses. Each must occur.

    Returns:
        The copy.
    """
    left = dict(changes or {})
    for source in program.parent.glob("*.py"):
        if source != program and not re.search(rf"^(import|from) {source.stem}\b", program.read_text(), re.M):
            continue
        text, count = re.subn(r"^(import|from) tensorflow(?=[. ])", r"\1 stratagem.tf", source.read_text(), flags=re.M)
        assert count, f"{source} does not import TensorFlow"
        for old, new in (changes or {}).items():
            if old in text:
                text = text.replace(old, new)
                left.pop(old, None)
        (folder / source.name).write_text(text.replace("/tmp/", f"{folder}/"))
    assert not left, f"{program} has nothing like {list(left)}"
    return folder / program.name


def data_at_hand(replace: Callable[[Any, str, Any], None]) -> None:
    """Give MNIST and Fashion-MNIST from STRATAGEM_DATA, or the digits inside Stratagem in their place; also as `tfds`.

    Args:
        replace: `setattr`, or a test's `monkeypatch.setattr`.
    """
    for name in ("mnist", "fashion_mnist"):
        # The first is read from the second: changed after it, it would be put back to the change.
        for module in (f"stratagem.tf.keras.datasets.{name}", f"keras.datasets.{name}"):
            replace(importlib.import_module(module), "load_data", lambda path="", name=name: _load(name))


def tensorflow_datasets() -> ModuleType:
    """Return what the tutorials use of the module `tensorflow_datasets`: `load` of MNIST."""
    import stratagem

    module = ModuleType("tensorflow_datasets")

    def load(name: str, with_info: bool = False, as_supervised: bool = False) -> Any:
        splits = dict(zip(("train", "test"), _load(name), strict=True))
        datasets = {
            split: stratagem.data.Dataset.from_tensor_slices((images[..., None], labels.astype("int64")))
            for split, (images, labels) in splits.items()
        }
        return (datasets, name) if with_info else datasets

    module.load = load  # pyright: ignore[reportAttributeAccessIssue]
    return module


def _load(name: str) -> tuple[Split, Split]:
    rows = int(os.environ.get(ROWS, 60000))
    if _DATA is None:
        pixels, labels = digits.read()
        large = np.kron(pixels / 16 * 255, np.ones((3, 3))).astype("uint8")
        images = np.pad(large, [(0, 0), (2, 2), (2, 2)])
        order = np.random.default_rng(0).permutation(len(images))
        train, test = order[360:], order[:360]
        return (images[train][:rows], labels[train][:rows]), (images[test][:rows], labels[test][:rows])
    with np.load(Path(_DATA) / f"{name}.npz") as arrays:
        x_train, y_train, x_test, y_test = (arrays[key][:rows] for key in ("x_train", "y_train", "x_test", "y_test"))
    return (x_train, y_train), (x_test, y_test)


def main() -> None:
    seed, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)  # what Python itself puts there for a script
    data_at_hand(setattr)
    if "tensorflow_datasets" in Path(program).read_text():
        sys.modules["tensorflow_datasets"] = tensorflow_datasets()
    keras.utils.set_random_seed(int(seed))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
