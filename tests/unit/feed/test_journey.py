"""The way of a batch: which files and classes of ours hand its rows on, from `fit(x, ...)` to the compiled step."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import Sequence

import stratagem
from stratagem.data import Dataset
from stratagem.data.batches import DatasetIterator

SOURCES = str(Path(stratagem.__file__).parent) + "/"
MOST_FILES = 8
MOST_CLASSES = 10
MARK = 1000.0
"""Inputs are larger than anything else that a step sees."""

# The last batch has three rows, which two replicas share unevenly.
X = MARK + np.arange(19, dtype=np.float32)[:, None]
Y = np.arange(19, dtype=np.float32)


class Numbered(Sequence):
    """A PyDataset of the same rows."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return X[4 * index : 4 * index + 4], Y[4 * index : 4 * index + 4]


def generator() -> Iterator[Any]:
    for index in range(5):
        yield Numbered()[index]


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 4, "shuffle": False},
    "dataset": lambda: {"x": Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x, y)).shuffle(20, seed=1).batch(4)},
    "PyDataset": lambda: {"x": Numbered()},
    "PyDataset with threads": lambda: {"x": Numbered(workers=2)},
    "generator": lambda: {"x": generator(), "steps_per_epoch": 5},
}


class Journey:
    """Notes which functions return rows of a batch while a train function runs, and in which classes of ours they lie.

    A dataset counts as the iterator that ends it: the steps before are the user's, as many as he wrote.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.classes: set[str] = set()
        self._inside = 0

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCES) or event not in ("call", "return"):
            return
        own = code is DatasetIterator.__next__.__code__
        if event == "call":
            self._inside += own
            return
        self._inside -= own
        if self._inside or not _holds_rows(result):
            return
        self.files.add(code.co_filename.removeprefix(SOURCES))
        self.classes.update(_classes_of(result))
        owner = code.co_qualname.partition(".")[0]
        if isinstance(vars(sys.modules[frame.f_globals["__name__"]]).get(owner), type):
            self.classes.add(owner)


def _parts(value: Any) -> list[Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return list(vars(value).values())
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _holds_rows(value: Any) -> bool:
    if isinstance(value, np.ndarray | jax.Array):
        return value.ndim == 2 and bool(np.isin(value, X).all())
    return any(map(_holds_rows, _parts(value)))


def _classes_of(value: Any) -> set[str]:
    """Return the classes of ours that hold rows of the batch here."""
    if not _holds_rows(value):
        return set()
    own = {type(value).__qualname__} if type(value).__module__.startswith("stratagem.") else set()
    return own.union(*map(_classes_of, _parts(value)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("name", INPUTS)
def test_few_files_and_classes_hand_a_batch_on(name: str, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-9), "mse")
    model.fit(**INPUTS[name](), epochs=1, verbose=0)  # compiles
    journey = Journey()
    call = type(model.train_function).__call__

    def recorded(*args: Any) -> Any:
        sys.setprofile(journey)
        try:
            return call(*args)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(type(model.train_function), "__call__", recorded)
    model.fit(**INPUTS[name](), epochs=1, verbose=0)
    assert {"Feed", "Reader", "Rows", "GlobalBatch"} <= journey.classes
    assert len(journey.files) <= MOST_FILES, sorted(journey.files)
    assert len(journey.classes) <= MOST_CLASSES, sorted(journey.classes)
