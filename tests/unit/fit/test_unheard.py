"""Batches that no callback listens to: Keras's list passes over them, and over no others."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import stratagem
from stratagem import keras
from stratagem.fit.unheard import listens, passing_over_unheard

MOMENTS = [f"on_{of}_batch_{moment}" for of in ("train", "test", "predict") for moment in ("begin", "end")]


class Noting(keras.callbacks.Callback):
    """Notes the batches of one moment."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self.batches: list[int] = []
        setattr(self, moment, lambda batch, logs=None: self.batches.append(batch))


def list_of(*callbacks: Any, kind: Any = keras.callbacks.CallbackList) -> Any:
    made = kind.__new__(kind)
    passing_over_unheard(keras.callbacks.CallbackList.__init__)(made, list(callbacks))
    return made


@pytest.fixture
def model() -> Any:
    with stratagem.OneDeviceStrategy("cpu:0").scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Keras hands to its thread."""
    found: list[str] = []

    def note(self: Any, fn: Any, *args: Any) -> None:
        found.append(fn.__name__)
        fn(*args)

    monkeypatch.setattr(keras.callbacks.CallbackList, "_async_dispatch", note)
    return found


X, Y = np.ones((12, 2), np.float32), np.ones((12, 1), np.float32)


def test_the_end_of_a_batch_that_nobody_listens_to_goes_to_no_thread(model: Any, dispatched: list[str]) -> None:
    ends: list[int] = []
    epochs = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(epoch))
    history = model.fit(X, Y, validation_data=(X, Y), batch_size=4, epochs=2, verbose=0, callbacks=[epochs])
    model.predict(X, verbose=0)
    assert dispatched == []
    assert ends == [0, 1]
    assert len(history.history["val_loss"]) == 2


@pytest.mark.parametrize("moment", [*MOMENTS, "on_batch_begin", "on_batch_end"])
def test_who_listens_is_told_of_each_batch(model: Any, moment: str) -> None:
    noting = Noting(moment)
    model.fit(X, Y, validation_data=(X, Y), batch_size=4, epochs=2, verbose=0, callbacks=[noting])
    model.predict(X, batch_size=4, verbose=0, callbacks=[noting])
    assert noting.batches == [0, 1, 2] * (1 if "predict" in moment else 2)


def test_a_bar_is_told_in_keras_own_thread(model: Any, dispatched: list[str], capsys: Any) -> None:
    model.fit(X, Y, batch_size=4, verbose=1)
    assert dispatched == ["_on_train_batch_end"] * 3
    assert "3/3" in capsys.readouterr().out


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_callback_that_comes_later_is_told(moment: str) -> None:
    callbacks, late = list_of(keras.callbacks.Callback()), Noting(moment)
    callbacks.on_train_begin()
    getattr(callbacks, moment)(0)
    callbacks.callbacks.append(late)
    getattr(callbacks, moment)(1)
    callbacks.callbacks = [late]
    getattr(callbacks, moment)(2)
    callbacks.on_train_end()
    assert late.batches == [1, 2]


@pytest.fixture
def last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of Keras that do the last of what they are handed first."""
    handed: list[Any] = []

    def flush(self: Any) -> None:
        while handed:
            fn, args = handed.pop()
            fn(*args)

    monkeypatch.setattr(
        keras.callbacks.CallbackList, "_async_dispatch", lambda self, *task: handed.append((task[0], task[1:]))
    )
    monkeypatch.setattr(keras.callbacks.CallbackList, "_flush_futures", flush)


@pytest.mark.usefixtures("last_first")
class TestInOrder:
    def test_a_hook_that_a_callback_gets_at_the_beginning_of_an_epoch_is_told(self, model: Any) -> None:
        batches: list[int] = []

        class Late(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if epoch == 1:
                    self.on_train_batch_end = lambda batch, logs=None: batches.append(batch)  # type: ignore[method-assign]

        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[Late()])
        assert batches == [0, 1, 2]

    @pytest.mark.parametrize("moment", [*MOMENTS, "on_batch_begin", "on_batch_end"])
    def test_a_callback_without_a_list_is_told(self, model: Any, moment: str) -> None:
        noting = Noting(moment)
        model.fit(X, Y, validation_data=(X, Y), batch_size=4, epochs=2, verbose=0, callbacks=noting)
        model.predict(X, batch_size=4, verbose=0, callbacks=noting)
        assert noting.batches == [0, 1, 2] * (1 if "predict" in moment else 2)

    @pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment.endswith("end")])
    def test_a_callback_that_comes_later_is_told_in_order_from_then_on(self, moment: str) -> None:
        safe = Noting(moment)
        safe.async_safe = True  # type: ignore[attr-defined]
        callbacks, late = list_of(safe), Noting(moment)
        callbacks.on_train_begin()
        for batch in range(4):
            if batch == 2:
                callbacks.callbacks.append(late)
            getattr(callbacks, moment)(batch)
        callbacks.on_train_end()
        assert sorted(safe.batches) == [0, 1, 2, 3]
        assert late.batches[-2:] == [2, 3]  # Keras's threads may find it in the list, too


class Counting(keras.callbacks.CallbackList):
    """One of a program's own, which does more than tell."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1


def test_a_list_of_a_program_is_left_as_it_is() -> None:
    callbacks = list_of(kind=Counting)
    callbacks.on_train_batch_end(0)
    assert callbacks.count == 1


def test_a_list_is_freed_when_it_is_let_go() -> None:
    gc.disable()
    try:
        callbacks = list_of(keras.callbacks.Callback())
        gone = weakref.ref(callbacks)
        del callbacks
        assert gone() is None
    finally:
        gc.enable()


class Older(keras.callbacks.Callback):
    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


class Alone:
    """An object that is no callback of Keras's, and has one hook."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass


def test_what_is_no_callback_of_keras_is_told_as_keras_does() -> None:
    assert all(listens(Alone(), moment) for moment in MOMENTS)


def test_older_names_are_those_of_training() -> None:
    assert [listens(Older(), moment) for moment in MOMENTS] == [False, True, False, False, False, False]
    assert not any(listens(keras.callbacks.Callback(), moment) for moment in MOMENTS)
    assert not any(listens(keras.callbacks.History(), moment) for moment in MOMENTS)
