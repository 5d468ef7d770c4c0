"""Callbacks of ours beside those of the program: which there are, where they stand, and when watchers look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import stratagem
from stratagem.fit.own_callbacks import with_own


def worker(*, is_chief: bool, status: str = "") -> Any:
    return SimpleNamespace(sharding=None, is_chief=is_chief, status=lambda: status)


@pytest.mark.parametrize(
    ("is_chief", "status", "verbose", "names"),
    [
        (True, "", 1, ["_Whole", "_ReportsInput", "EarlyStopping"]),
        (False, "", 1, ["_Whole", "EarlyStopping"]),
        (True, "2/2 workers", 1, ["_Whole", "_ReportsInput", "EarlyStopping", "_ShowsCluster"]),
        (True, "2/2 workers", 0, ["_Whole", "_ReportsInput", "EarlyStopping"]),
    ],
)
def test_our_own_stand_round_those_of_the_program(is_chief: bool, status: str, verbose: int, names: list[str]) -> None:
    arguments: dict[str, Any] = {"callbacks": keras.callbacks.EarlyStopping(), "verbose": verbose}
    session: Any = SimpleNamespace(strategy=worker(is_chief=is_chief, status=status))
    with_own(arguments, session, [])
    assert [type(callback).__name__ for callback in arguments["callbacks"]] == names


def test_a_list_that_keras_has_made_stays() -> None:
    made = keras.callbacks.CallbackList([])
    arguments: dict[str, Any] = {"callbacks": made, "verbose": 1}
    with_own(arguments, SimpleNamespace(strategy=worker(is_chief=True)), [])  # pyright: ignore[reportArgumentType]
    assert arguments == {"callbacks": made, "verbose": 1}


class Looks(keras.callbacks.Callback):
    """Writes down behind which steps it was told to look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[int, int]] = []
        self.fits = 0

    @property
    def now(self) -> tuple[int, int]:
        return self.fits, self._session.steps

    def begin_watching(self, session: Any) -> None:
        self._session = session
        self.fits += 1

    def look(self) -> None:
        self.looks.append(self.now)

    def before_step(self, *_: Any) -> None: ...
    def after_step(self, *_: Any) -> None: ...
    def meet_new(self, _: Any) -> None: ...
    def end_watching(self) -> None: ...


class Saves(keras.callbacks.ModelCheckpoint):
    """Writes down behind which steps it saves, and that a watcher has looked."""

    def __init__(self, save_freq: int, looks: Looks) -> None:
        super().__init__("unused.weights.h5", save_weights_only=True, save_freq=save_freq)
        self.saves: list[tuple[int, int]] = []
        self._looks = looks

    def _save_model(self, epoch: int, batch: Any, logs: Any) -> None:
        assert self._looks.looks[-1] == self._looks.now
        self.saves.append(self._looks.now)


@pytest.mark.parametrize(
    ("executed_at_once", "by_4", "by_7"),
    [
        (1, [(1, 4), (1, 8), (1, 12), (1, 16), (1, 20), (2, 2), (2, 6), (2, 10)], [(1, 7), (1, 14), (1, 21), (2, 6)]),
        (3, [(1, 6), (1, 11), (1, 17), (1, 22), (2, 6), (2, 11)], [(1, 9), (1, 17), (2, 3), (2, 11)]),
    ],
)
def test_watchers_look_before_each_model_that_is_saved_within_an_epoch(
    executed_at_once: int, by_4: list[tuple[int, int]], by_7: list[tuple[int, int]]
) -> None:
    with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=executed_at_once)
    looks = Looks()
    every_4, every_7 = Saves(4, looks), Saves(7, looks)
    x = np.ones((44, 2), "float32")
    for epochs in (2, 1):  # the counts of Keras's callbacks go on in the next fit
        model.fit(x, x[:, :1], batch_size=4, epochs=epochs, verbose=0, callbacks=[every_4, looks, every_7])
    assert (every_4.saves, every_7.saves) == (by_4, by_7)
    assert looks.looks == sorted({*by_4, *by_7})
