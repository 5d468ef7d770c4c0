"""What `test_spares.py` trains: a model whose state is more than weights, and whose workers die as they are told.

`trains_with_spares.py FOLDER FAULTS`: each fault is "RANK:STEP:SIGNAL", "RANK:testSTEP:SIGNAL" in an evaluation, or
"RANK:scope:SIGNAL" before training; the first process that comes to it as that worker sends itself the signal. With
"launcher-SIGNAL" it sends the signal to its launcher.
"validates" adds a validation, "dataset" makes it one of a dataset, "asks" asks for the place of this worker at first.
With "prepared:N" the others wait behind their first step until N processes are prepared to take part; with "stuck" one
that prepares, and for which the others wait behind their sixth step, does not come to training before a worker has come
to its end; with "fails" it raises an exception. With "shown:FILE:TASK" they wait in their second epoch until a line of
a launcher's log says that a process has taken steps. Those that come to the end write what they have.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

import stratagem
from stratagem.core.clock import Clock, Deadline
from stratagem.elastic.client import Membership

STEPS, EPOCHS, ROWS = 8, 3, 22
VALIDATED = 3 * ROWS


def fault(folder: Path, name: str, faults: list[str]) -> bool:
    """Do what is to happen here, once in all processes; return whether it was a sign to the test (SIGCONT)."""
    is_sign = False
    for each in faults:
        if each.startswith(f"{name}:"):
            with contextlib.suppress(FileExistsError):
                (folder / f"did {each}").touch(exist_ok=False)
                is_sign |= each.endswith(":SIGCONT")
                if each.endswith("raise"):
                    raise ValueError("a mistake of the program")
                signal_name = each.rpartition(":")[2]
                to = os.getppid() if signal_name.startswith("launcher-") else os.getpid()
                os.kill(to, getattr(signal, signal_name.removeprefix("launcher-")))
    return is_sign


def await_stop(strategy: Any) -> None:
    """Wait until workers are told to stop: the test has had its sign, and training would end before a launcher acts."""
    gate, deadline = strategy.mesh.world.membership.gate, Deadline(5.0)
    world = gate.world
    while not (gate._is_held or gate.world > world or deadline.expired):  # it is held for a moment only
        Clock().wait(0.01)


def note_prepared(folder: Path) -> None:
    """Leave a file when this process has told that it is prepared."""
    prepared = Membership.prepared

    def told(membership: Membership) -> None:
        prepared(membership)
        (folder / f"prepared {membership.number}").touch()

    Membership.prepared = told  # type: ignore[method-assign]


def await_files(folder: Path, pattern: str, count: int) -> None:
    deadline = Deadline(120.0)
    while len(list(folder.glob(pattern))) < count and not deadline.expired:
        Clock().wait(0.01)


def await_prepared(folder: Path, faults: list[str]) -> None:
    """Wait for as many processes to be prepared as "prepared:N" says."""
    await_files(folder, "prepared *", sum(int(each[9:]) for each in faults if each.startswith("prepared:")))


def await_shown(folder: Path, faults: list[str]) -> None:
    """Wait until logs of launchers show what "shown:FILE:TASK" says."""
    deadline = Deadline(120.0)
    for each in faults:
        if each.startswith("shown:"):
            _, name, task = each.split(":")
            file = folder / name
            while not deadline.expired:
                lines = file.read_text().splitlines()[:-1] if file.exists() else []  # the last one may be half
                if any(line["task"] == task and line["steps"] > 1 for line in map(json.loads, lines)):
                    break
                Clock().wait(0.1)


def meet_faults_of_preparing(folder: Path, strategy: Any, faults: list[str], end: str) -> None:
    """Meet what is to happen to a process that prepares."""
    if strategy.mesh.world is not None and strategy.mesh.world.is_preparing:
        (folder / "prepares").touch()
        if "stuck" in faults:
            await_files(folder, end, 1)
        if "fails" in faults:
            raise ValueError("no room for the data")


class Faults(keras.callbacks.Callback):
    """Callback that lets this worker meet its faults, and notes the steps that it has taken."""

    def __init__(self, folder: Path, strategy: Any, faults: list[str]) -> None:
        super().__init__()
        self.folder, self.faults, self.strategy = folder, faults, strategy
        # Asked at the first step: a process that prepares has none before.
        self.rank = functools.cache(lambda: strategy.worker_index)
        self.epoch = 0
        self.num_tested = 0
        self.steps: list[tuple[int, int]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (0, 0):
            await_prepared(self.folder, self.faults)
        if (self.epoch, batch) == (0, 5) and "stuck" in self.faults:
            await_files(self.folder, "prepares", 1)
        if (self.epoch, batch) == (1, 0):
            await_shown(self.folder, self.faults)
        self.steps.append((self.epoch, batch))
        if fault(self.folder, f"{self.rank()}:{self.epoch * STEPS + batch + 1}", self.faults):
            await_stop(self.strategy)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.num_tested += 1
        fault(self.folder, f"{self.rank()}:test{self.num_tested}", self.faults)


def show_task(when: str, strategy: stratagem.MultiWorkerMirroredStrategy) -> None:
    """Print what programs ask the resolver for when they look for the chief."""
    task = strategy.cluster_resolver
    print(f"{when}: {task.task_type} {task.task_id} of {task.cluster_spec().num_tasks('worker')}", flush=True)


def main(folder: Path, faults: list[str]) -> None:
    note_prepared(folder)
    strategy = stratagem.MultiWorkerMirroredStrategy()
    meet_faults_of_preparing(folder, strategy, faults, "worker-*")
    if "asks" in faults:
        show_task("first", strategy)
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(STEPS * ROWS - 3, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).shuffle(1000, seed=3).batch(ROWS)
    with strategy.scope():
        if any("scope" in each for each in faults):
            fault(folder, f"{strategy.worker_index}:scope", faults)
        layers = [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
        ]
        model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    if "before" in faults:
        model.predict(x[:2], verbose=0)
    told = Faults(folder, strategy, faults)
    slower = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=10.0)
    held: Any = (x[:VALIDATED], y[:VALIDATED]) if "validates" in faults else None
    batched: dict[str, Any] = {"validation_batch_size": ROWS}
    if "dataset" in faults:
        held, batched = stratagem.data.Dataset.from_tensor_slices(held).shuffle(VALIDATED).batch(ROWS), {}
    callbacks = [slower, told]
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=held, **batched).history
    show_task("at last", strategy)
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.variables)).hexdigest()
    slots = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in model.optimizer.variables)).hexdigest()
    cores = [sorted(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")]
    (folder / f"cores-{told.rank()}").write_text(json.dumps(cores))
    found = {"history": history, "weights": digest, "slots": slots, "steps": told.steps}
    (folder / f"worker-{told.rank()}.json").write_text(json.dumps(found))
    if "exit" in faults:
        sys.exit(7)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
