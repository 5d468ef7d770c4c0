"""How a contender is measured: one epoch a turn, so that contenders alternate on the same cores.

A contender is a program of its own: `contender.py DATA STEPS`, perhaps with more arguments. It trains for ever, an
epoch of STEPS steps after the other, and calls `Turns.finish` at the end of each. That writes one line of JSON to
standard output and waits for a line on standard input before the next epoch begins. The end of standard input ends it.
Whatever else is printed goes to standard error. The first epoch, with start-up and compilation, needs no line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_FOR_EVER = 1_000_000


class Turns:
    """The turns of this contender.

    Args:
        **versions: Versions of what it runs on, by name.
    """

    def __init__(self, **versions: str) -> None:
        self._data, steps = sys.argv[1:3]
        self.steps = int(steps)
        self._versions = versions
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._begin = _clocks()

    def rows(self, global_batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of one epoch: images float32 [steps * global_batch, 28, 28] in 0..1, labels int64."""
        with np.load(self._data) as data:
            chosen = np.arange(self.steps * global_batch) % len(data["y"])
            return data["x"][chosen], data["y"][chosen]

    def inputs_and_targets(self, global_batch: int) -> tuple[Any, np.ndarray]:
        """Return the rows of one epoch of a network of `networks/`.

        Args:
            global_batch: Rows of a step, of all workers.

        Returns:
            The array of inputs, or a dictionary of several by name; and the targets.
        """
        with np.load(self._data) as data:
            rows = {name: data[name][: self.steps * global_batch] for name in data.files}
        targets = rows.pop("y")
        return next(iter(rows.values())) if len(rows) == 1 else rows, targets

    def finish(self, loss: float) -> bool:
        """Report the epoch that just ended and wait for the next turn.

        Args:
            loss: Mean loss over the epoch.

        Returns:
            Whether there is a next turn.
        """
        wall, cpu = (now - begin for now, begin in zip(_clocks(), self._begin, strict=True))
        answer: dict[str, Any] = {"ms": 1e3 * wall / self.steps, "cpu_ms": 1e3 * cpu / self.steps, "loss": loss}
        answer["peak_mib"] = _peak_mib()
        if self._versions:
            answer |= {"versions": self._versions, "cores": sorted(os.sched_getaffinity(0))}
            self._versions = {}
        self._answers.write(json.dumps(answer) + "\n")
        if not sys.stdin.readline():
            return False
        self._begin = _clocks()
        return True


def fit_in_turns(
    keras: Any, model: Any, turns: Turns, *data: Any, callbacks: Sequence[Any] = (), **options: Any
) -> None:
    """Call `model.fit` once; a turn is what lies between the ends of two of its epochs.

    Args:
        keras: The Keras that made the model.
        model: A compiled model.
        turns: When to run an epoch.
        *data: What `fit` takes first.
        callbacks: More callbacks of `fit`.
        **options: More options of `fit`.
    """

    def on_epoch_end(epoch: int, logs: dict[str, float]) -> None:
        model.stop_training = not turns.finish(float(logs["loss"]))

    end_of_turn = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
    model.fit(*data, epochs=_FOR_EVER, callbacks=[*callbacks, end_of_turn], verbose=0, **options)


def _clocks() -> tuple[float, float]:
    """Return the time on the wall and the time that cores worked for this process, in seconds."""
    return time.perf_counter(), time.process_time()


def _peak_mib() -> float:
    """Return the most memory that this process has had, in MiB; what `getrusage` says begins with its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0
