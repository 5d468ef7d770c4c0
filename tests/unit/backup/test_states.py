from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from stratagem.backup.states import Arrays, CallbackStates
from stratagem.core.errors import InputError


class Counting(keras.callbacks.Callback):
    """Changes a list, a number and a variable; holds a setting and something that is not plain."""

    def __init__(self, patience: int = 3) -> None:
        super().__init__()
        self.patience = patience
        self.seen: list[int] = []
        self.best = 0.0
        self.total = keras.Variable(0.0, trainable=False)
        self.stream = object()

    def work(self) -> None:
        self.seen.append(7)
        self.best = 2.5
        self.total.assign(4.0)


class Own(keras.callbacks.Callback):
    """Decides itself what its state is."""

    def __init__(self, state: Any = None) -> None:
        super().__init__()
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


def test_what_training_has_changed_is_saved_and_nothing_else() -> None:
    callback, arrays = Counting(), Arrays()
    states = CallbackStates([keras.callbacks.ProgbarLogger(), callback])
    callback.work()
    [(name, said)] = states.save(arrays).items()

    assert name == f"{Counting.__module__}.Counting 0"
    assert said["attributes"] == {"seen": [7], "best": 2.5}
    assert said["variables"] == {"total": [f"callbacks/{name}/total/variable 0"]}
    assert arrays[said["variables"]["total"][0]] == np.float32(4.0)


def test_a_resumed_callback_keeps_its_settings_and_its_lists() -> None:
    before, arrays = Counting(), Arrays()
    states = CallbackStates([before])
    before.work()
    said = states.save(arrays)
    after = Counting(patience=9)
    seen = after.seen
    CallbackStates([after]).restore(said, arrays)

    assert (after.patience, after.best, float(after.total)) == (9, 2.5, 4.0)
    assert after.seen is seen
    assert seen == [7]


def test_a_callback_with_a_state_decides_itself(caplog: pytest.LogCaptureFixture) -> None:
    arrays = Arrays()
    said = CallbackStates([Own({"at": 3}), Own((1, 2))]).save(arrays)
    first, second = Own(), Own()
    CallbackStates([first, second]).restore(said, arrays)
    assert (first.state, second.state) == ({"at": 3}, (1, 2))

    CallbackStates([first]).report_missing(said)
    assert f"callbacks that this fit does not have: {Own.__module__}.Own 1" in caplog.text
    with pytest.raises(InputError, match=r"get_state\(\) of the callback Own returned .* of type object"):
        CallbackStates([Own(object())]).save(arrays)


def test_what_keras_tells_a_callback_is_no_state() -> None:
    """Epochs and steps are those of the `fit` that goes on, also where workers have come or gone."""
    callback, arrays = Counting(), {}
    callback.set_params({"epochs": 3, "steps": 8})
    states = CallbackStates([callback])
    callback.set_params({"epochs": 3, "steps": 12})
    saved = states.save(arrays)
    callback.set_params({"epochs": 3, "steps": 24})
    states.restore(saved, arrays)
    assert callback.params == {"epochs": 3, "steps": 24}
