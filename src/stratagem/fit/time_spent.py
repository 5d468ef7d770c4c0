"""A callback that adds to the logs how fast steps are, and how much of the time they waited."""

from __future__ import annotations

from typing import Any

import keras

from stratagem.core.progress import progress
from stratagem.core.spent import NOTHING_SPENT


class TimeSpent(keras.callbacks.Callback):
    """Add the speed of the steps and the waiting times to the logs of each epoch.

    The entries are `steps/s`, and `waiting_input` and `waiting_others`, which are shares of the epoch from 0 to 1.
    `History`, `CSVLogger`, `TensorBoard` and your own callbacks see them if they come later in the list of callbacks.
    Each worker has its own entries, so the chief's files contain those of the chief.

    Example:
        >>> import numpy as np
        >>> from stratagem import keras
        >>> from stratagem.callbacks import TimeSpent
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[TimeSpent()])
        >>> sorted(history.history)
        ['loss', 'steps/s', 'waiting_input', 'waiting_others']
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = 0.0
        self._steps = 0
        self._spent = NOTHING_SPENT

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._clock, self._steps, self._spent = progress.clock.now(), progress.mark.steps, progress.spent

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None:
            return
        seconds = max(progress.clock.now() - self._clock, 1e-9)
        spent = progress.spent.since(self._spent)
        logs["steps/s"] = (progress.mark.steps - self._steps) / seconds
        logs["waiting_input"] = min(1.0, spent.input / seconds)
        logs["waiting_others"] = min(1.0, spent.waiting / seconds)
