"""A callback that adds to the logs how fast steps are, and how much of the time they waited."""

from __future__ import annotations

from typing import Any

import keras

from stratagem.core.progress import progress
from stratagem.core.spent import NOTHING_SPENT


class TimeSpent(keras.callbacks.Callback):
    """Add to the logs of each epoch how fast its steps were, and what this worker waited for.

    The entries are `steps/s`, and `waiting_input` and `waiting_others`, shares of the epoch from 0 to 1. `History`,
    `CSVLogger`, `TensorBoard` and a program's own callbacks that stand behind it find them there. They are those of
    the worker itself, so that of a run with several workers a chief's files show the chief's.

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
