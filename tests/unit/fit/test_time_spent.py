from __future__ import annotations

import keras
import numpy as np
import pytest
from tests.clock import HandClock

from stratagem import MirroredStrategy
from stratagem.callbacks import TimeSpent
from stratagem.core.progress import Phase, Progress
from stratagem.fit import time_spent


def test_shares_are_those_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock(5.0)
    progress = Progress(clock)
    monkeypatch.setattr(time_spent, "progress", progress)
    callback, logs = TimeSpent(), {"loss": 0.5}
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for _ in range(4):
            with progress.during(Phase.INPUT):
                clock.time += 0.5
            with progress.during(Phase.STEP, steps=1):
                clock.time += 1.25
                progress.exchanged(1.0, 0.75)
            clock.time += 0.75
        callback.on_epoch_end(epoch, logs)
        clock.time += 100.0
        assert logs == {"loss": 0.5, "steps/s": 0.4, "waiting_input": 0.2, "waiting_others": 0.3}


def test_history_has_them_under_a_strategy() -> None:
    with MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    history = model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=3, verbose=0, callbacks=[TimeSpent()]).history
    assert all(rate > 0 for rate in history["steps/s"])
    assert all(0 <= share <= 1 for name in ("waiting_input", "waiting_others") for share in history[name])
