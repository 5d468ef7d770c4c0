"""What is killed in the tests of parameter servers: `fit` with backups, which counts how often each example was seen.

    stratagem run --ps 2 --workers 1 --max-restarts 9 tests/faults/trains_with_servers.py FOLDER TASK:EPOCH:BATCH ...

Each task writes its process id to FOLDER. The chief kills TASK (`chief-0`, `ps-1`, `worker-0`), once, when that many
batches of that epoch are done and nothing is under way. At the end it writes `end.json`, and the weights. "hurries"
lets it wait for two workers for half a second only, and keeps a worker that is started again from coming back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

import stratagem
from stratagem.core.clock import Clock, Deadline

EPOCHS, STEPS, BATCH = 3, 24, 8
EXAMPLES = STEPS * BATCH


class Seen(keras.metrics.Metric):
    """How often each example was seen in this epoch; its result is how many were."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.times = self.add_weight(shape=(EXAMPLES,), initializer="zeros", name="times")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        numbers = keras.ops.cast(y_true[:, 1], "int32")
        self.times.assign_add(keras.ops.sum(keras.ops.one_hot(numbers, EXAMPLES), axis=0))

    def result(self) -> Any:
        return keras.ops.sum(keras.ops.cast(self.times > 0, "float32"))


def squared_error(y_true: Any, y_pred: Any) -> Any:
    return (y_true[:, 0] - y_pred[:, 0]) ** 2


class Watches(keras.callbacks.Callback):
    """Notes what was seen in each epoch, and kills at given places."""

    def __init__(self, folder: Path, kills: Sequence[str]) -> None:
        super().__init__()
        self._folder, self._kills = folder, kills
        self.times: list[list[int]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for kill in self._kills:
            task, epoch, done = kill.split(":")
            if (self._epoch, batch + 1) == (int(epoch), int(done)) and not (self._folder / kill).exists():
                self.model.jax_state_sync()
                (self._folder / kill).touch()
                os.kill(int((self._folder / task).read_text()), signal.SIGKILL)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seen = next(metric for metric in self.model.metrics[-1].metrics if metric.name == "seen")
        self.times.append(np.asarray(seen.times.value).astype(int).tolist())


def train(strategy: Any, folder: Path, kills: Sequence[str] = ()) -> dict[str, Any]:
    """Train, and return how it went and the weights."""
    keras.utils.set_random_seed(1)  # a run that is killed before its first step begins anew
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, 5)).astype("float32")
    y = np.stack([x.sum(axis=1), np.arange(EXAMPLES)], axis=1).astype("float32")
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).shuffle(EXAMPLES).batch(BATCH)
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), squared_error, metrics=[Seen()])
    watches = Watches(folder, kills)
    backup = stratagem.callbacks.BackupAndRestore(folder / "backup", save_freq=7)
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=[watches, backup])
    return {
        "counts": {"epochs": EPOCHS, "steps": STEPS},
        "epochs": len(history.history["loss"]),
        "iterations": int(model.optimizer.iterations),
        "times": watches.times,
        "weights": [np.asarray(v.value).tolist() for v in (*model.variables, *model.optimizer.variables)],
    }


def main(folder: Path, kills: Sequence[str]) -> None:
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    own = folder / f"{task['type']}-{task['index']}"
    if "hurries" in kills and own.exists():  # on a fast machine it would be back in less than half a second
        deadline = Deadline(60.0)
        while not deadline.expired:  # the launcher ends it when the chief has given up
            Clock().wait(0.05)
    own.write_text(str(os.getpid()))
    hurries = {"elastic": stratagem.ElasticOptions(2, below_min_seconds=0.5)} if "hurries" in kills else {}
    end = train(stratagem.ParameterServerStrategy(**hurries), folder, [kill for kill in kills if kill != "hurries"])
    (folder / "end.json").write_text(json.dumps(end))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
