"""A `fit` that was interrupted and begun again ends as one that was not."""

from __future__ import annotations

import csv
import functools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.fresh import run_python

import stratagem
from stratagem.backup import callback as backup
from stratagem.callbacks import BackupAndRestore
from stratagem.checkpoint.state_file import read_state
from stratagem.core.errors import CheckpointError, InputError, UsageError
from stratagem.data import Dataset
from stratagem.train import Checkpoint

EPOCHS = 3
BATCHES = 6
"""Batches of four rows in an epoch, and two rows more."""

RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCHES * 4 - 2, 3)).astype("float32")
Y = RNG.normal(size=(len(X), 1)).astype("float32")


class Interrupted(Exception):
    """What ends a program in these tests."""


class Interrupts(keras.callbacks.Callback):
    """Ends training behind a batch, or behind an epoch for batch None."""

    def __init__(self, at: tuple[int, int | None] | None) -> None:
        super().__init__()
        self._at = at
        self._now = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._now = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._at is not None and self._at[1] is not None and (self._now, batch) >= self._at:
            raise Interrupted

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._at == (epoch, None):
            raise Interrupted


class Numbered(keras.utils.PyDataset):
    """Batches by number; hears how many epochs have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs_ended = 0

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(4 * index, 4 * index + 4)
        return X[rows] * (1 + self.epochs_ended), Y[rows]

    def on_epoch_end(self) -> None:
        self.epochs_ended += 1


def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    while True:
        rows = rng.permutation(len(X))[:4]
        yield X[rows], Y[rows]


def dataset() -> Dataset:
    return Dataset.from_tensor_slices((X, Y)).shuffle(10)


def windows() -> Any:
    """Return an input that is resumed by the state of its iterator."""
    grain = pytest.importorskip("grain")
    rows = grain.MapDataset.range(len(X)).map(lambda i: (X[i], Y[i])).to_iter_dataset()
    return grain.experimental.WindowShuffleIterDataset(rows, window_size=9, seed=2).batch(4)


INPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 4},
    "dataset": lambda: {"x": dataset().batch(4)},
    "repeated": lambda: {"x": dataset().repeat().batch(4), "steps_per_epoch": BATCHES},
    "part of a pass": lambda: {"x": dataset().batch(2), "steps_per_epoch": BATCHES},  # 11 batches: not twice 6
    "unknown length": lambda: {"x": dataset().filter(lambda x, y: x[0] < 0.5).batch(4)},
    "PyDataset": lambda: {"x": Numbered(), "shuffle": True, "validation_data": Numbered()},
    "generator": lambda: {"x": endless(), "steps_per_epoch": BATCHES, "shuffle": False},
    "grain": lambda: {"x": windows()},
}


def mirrored(replicas: int) -> Callable[[], stratagem.Strategy]:
    return lambda: stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])


def at_a_centre() -> stratagem.Strategy:
    return stratagem.CentralStorageStrategy(["cpu:0", "cpu:1"], "cpu:2")


ONE_REPLICA = mirrored(1)


def program(
    seed: int,
    data: Callable[[], dict[str, Any]],
    callbacks: list[Any],
    strategy: Callable[[], stratagem.Strategy] = ONE_REPLICA,
    steps_per_execution: int = 1,
    epochs: int = EPOCHS,
    **fit: Any,
) -> tuple[keras.Model, dict[str, list[float]]]:
    """Make a model and train it, as a program does that is started anew."""
    keras.utils.set_random_seed(seed)
    with strategy().scope():
        # Small, as each start compiles it anew; dropout draws random numbers, momentum is state of the optimizer.
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    history = model.fit(**data(), epochs=epochs, verbose=0, callbacks=callbacks, **fit)
    return model, history.history


def values(model: keras.Model) -> list[bytes]:
    return [np.asarray(v.value).tobytes() for v in (*model.variables, *model.optimizer.variables)]


@functools.cache
def undisturbed(name: str) -> tuple[list[bytes], dict[str, list[float]]]:
    """Return what a program ends with that nothing happens to, and that has no backup."""
    model, history = program(1, INPUTS[name], [])
    return values(model), history


def interrupted_program(
    at: tuple[int, int | None], backup: Callable[[], BackupAndRestore], **program_arguments: Any
) -> tuple[keras.Model, dict[str, list[float]]]:
    """Run a program, interrupt it, and run it again with another seed: what is random comes from the backup."""
    with pytest.raises(Interrupted):
        program(1, callbacks=[Interrupts(at), backup()], **program_arguments)
    return program(2, callbacks=[backup()], **program_arguments)


MOMENTS: dict[str, tuple[int, int | None]] = {
    "arrays": (1, 3),
    "dataset": (1, None),
    "repeated": (1, 5),
    "part of a pass": (1, 2),
    "unknown length": (2, 1),
    "PyDataset": (1, 4),
    "generator": (2, 3),
    "grain": (1, 4),
}
"""When the program is interrupted."""


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("name", INPUTS)
def test_ends_as_if_nothing_had_happened(tmp_path: Path, name: str) -> None:
    weights, history = undisturbed(name)
    again, told = interrupted_program(
        MOMENTS[name], lambda: BackupAndRestore(tmp_path / "backup", save_freq=2), data=INPUTS[name]
    )
    assert values(again) == weights
    assert told == history
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("at", "arguments"),
    [
        ((1, None), {"strategy": mirrored(2)}),
        ((1, 4), {"strategy": mirrored(2), "steps_per_execution": 2}),
        ((1, 4), {"strategy": at_a_centre}),
        ((2, 1), {"validation_data": (X[:8], Y[:8])}),
    ],
)
def test_at_the_end_of_each_epoch(tmp_path: Path, at: tuple[int, int | None], arguments: dict[str, Any]) -> None:
    model, history = program(1, INPUTS["arrays"], [], **arguments)
    again, told = interrupted_program(
        at, lambda: BackupAndRestore(tmp_path / "backup"), data=INPUTS["arrays"], **arguments
    )
    assert values(again) == values(model)
    assert told == history


@pytest.mark.thorough
def test_gradients_accumulated_on_several_replicas(tmp_path: Path) -> None:
    def run(seed: int, callbacks: list[Any]) -> keras.Model:
        keras.utils.set_random_seed(seed)
        with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3), "mse")
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
        return model

    with pytest.raises(Interrupted):
        run(1, [Interrupts((0, 5)), BackupAndRestore(tmp_path / "a", save_freq=2)])
    resumed = run(2, [BackupAndRestore(tmp_path / "a", save_freq=2)])
    assert values(resumed) == values(run(1, [BackupAndRestore(tmp_path / "b", save_freq=2)]))
    for one, other in zip(resumed.get_weights(), run(1, []).get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


class Terminates(keras.callbacks.Callback):
    """Sends SIGTERM to its process, once, behind a batch, or behind an epoch for batch None.

    The thread that answers it settles the step to stop behind before training goes on: `fit` could be over by then.
    """

    def __init__(self, at: tuple[int, int | None]) -> None:
        super().__init__()
        self._at = at

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._now = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._maybe(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._maybe(None)

    def _maybe(self, batch: int | None) -> None:
        if self._at == (self._now, batch):
            terminate()


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    for thread in threading.enumerate():
        if thread.name == "stratagem-stop-request":
            thread.join()


class TerminatesAtTheEnd(keras.callbacks.Callback):
    """Sends SIGTERM when all steps are done, and other callbacks still have work."""

    def on_train_end(self, logs: Any = None) -> None:
        terminate()


def test_preempted_behind_the_last_step(tmp_path: Path) -> None:
    def backup() -> BackupAndRestore:
        return BackupAndRestore(tmp_path, save_freq=False, save_before_preemption=True)

    with pytest.raises(SystemExit) as ended:
        program(1, INPUTS["arrays"], [TerminatesAtTheEnd(), backup()])
    assert ended.value.code == 42
    again, _ = program(1, INPUTS["arrays"], [seen := PerBatch([]), backup()])
    assert seen.seen == []  # nothing was left to train
    assert values(again) == undisturbed("arrays")[0]


@pytest.mark.parametrize("at", [(0, BATCHES - 1), (1, 2)])
def test_preempted(tmp_path: Path, at: tuple[int, int | None]) -> None:
    def backup() -> BackupAndRestore:
        return BackupAndRestore(tmp_path, save_freq=False, save_before_preemption=True)

    before, seen = signal.getsignal(signal.SIGTERM), PerBatch([])
    with pytest.raises(SystemExit) as ended:
        program(1, INPUTS["arrays"], [seen, Terminates(at), backup()])
    assert ended.value.code == 42
    assert signal.getsignal(signal.SIGTERM) is before
    done = at[0] * BATCHES + (BATCHES if at[1] is None else at[1] + 1)
    assert len(seen.seen) == done
    again, told = program(2, INPUTS["arrays"], [resumed := PerBatch([]), backup()])
    model, history = program(1, INPUTS["arrays"], [undisturbed := PerBatch([])])
    assert values(again) == values(model)
    assert told == history
    assert resumed.told() == undisturbed.told()


class PerBatch(keras.callbacks.Callback):
    """Has state of several kinds, and changes the learning rate in a way that must not happen twice."""

    def __init__(self, seen: list[float]) -> None:
        super().__init__()
        self.seen = seen
        self.array = np.zeros(2)
        self.variable = keras.Variable(0.0, trainable=False)
        self.metric = keras.metrics.Mean()
        self.not_plain = object()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.in_epoch = 0
        self.model.optimizer.learning_rate = self.model.optimizer.learning_rate * 0.5

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        assert logs is not None
        self.in_epoch += 1
        self.seen.append(logs["loss"])
        self.array += self.in_epoch
        self.variable.assign(self.variable + logs["mae"])
        self.metric.update_state(logs["loss"])

    def told(self) -> list[Any]:
        return [list(self.seen), self.in_epoch, self.array.tolist(), float(self.variable), float(self.metric.result())]


class Own(keras.callbacks.Callback):
    """Says itself what its state is."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = self.forgotten = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        self.forgotten += 1

    def get_state(self) -> dict[int, Any]:
        return {7: (self.batches, np.float32(self.batches))}

    def set_state(self, state: dict[int, Any]) -> None:
        self.batches, number = state[7]
        assert number == self.batches
        assert type(number) is np.float32


def stateful_callbacks() -> list[Any]:
    return [
        keras.callbacks.EarlyStopping("mae", min_delta=10, patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", min_delta=10, patience=1),
        PerBatch([]),
        Own(),
    ]


@pytest.mark.thorough
def test_other_callbacks_go_on(tmp_path: Path) -> None:
    """Early stopping ends epoch 3 of 9 and restores the weights of epoch 1, in which the program was interrupted."""
    arguments: dict[str, Any] = {"data": INPUTS["arrays"], "epochs": 9}
    callbacks = stateful_callbacks()
    model, history = program(1, callbacks=callbacks, **arguments)
    assert len(history["loss"]) == 3
    assert callbacks[0].best_epoch == 0
    for at in [(1, 3), (2, 4)]:
        backup = BackupAndRestore(tmp_path / "backup", save_freq=2)
        with pytest.raises(Interrupted):
            program(at[0], callbacks=[Interrupts(at), backup, *stateful_callbacks()], **arguments)
    resumed = stateful_callbacks()
    again, told = program(9, callbacks=[BackupAndRestore(tmp_path / "backup", save_freq=2), *resumed], **arguments)
    assert values(again) == values(model)
    assert told == history
    assert resumed[2].told() == callbacks[2].told()
    assert resumed[3].batches == callbacks[3].batches == 3 * BATCHES
    assert resumed[3].forgotten < 3 * BATCHES


def test_what_the_program_sets_anew_is_not_superseded(tmp_path: Path) -> None:
    stops = keras.callbacks.EarlyStopping("mae", min_delta=10, patience=1)
    with pytest.raises(Interrupted):
        program(1, INPUTS["arrays"], [stops, Interrupts((1, 2)), BackupAndRestore(tmp_path)])
    stops = keras.callbacks.EarlyStopping("mae", min_delta=10, patience=3)
    _, history = program(1, INPUTS["arrays"], [stops, BackupAndRestore(tmp_path)], epochs=9)
    assert len(history["loss"]) == 4


def test_a_fit_that_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    def run(epochs: int, **fit: Any) -> tuple[keras.Model, dict[str, list[float]]]:
        backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
        return program(1, INPUTS["arrays"], [backup], epochs=epochs, **fit)

    model, history = run(2)
    again, told = run(2, initial_epoch=1)
    assert values(again) == values(model)
    assert told == history
    further, longer = run(3)
    assert (longer["loss"][:2], len(longer["loss"])) == (history["loss"], 3)
    assert values(further) == undisturbed("arrays")[0]
    again.fit(X, Y, batch_size=4, verbose=0)  # without the callback Keras begins at epoch 0 again
    assert again.history.epoch == [0]


def test_a_model_of_no_strategy(tmp_path: Path) -> None:
    def run(seed: int, callbacks: list[Any]) -> keras.Model:
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
        return model

    with pytest.raises(Interrupted):
        run(1, [Interrupts((1, 3)), BackupAndRestore(tmp_path / "a", save_freq=1)])
    resumed = run(2, [BackupAndRestore(tmp_path / "a", save_freq=1)])
    assert values(resumed) == values(run(1, [BackupAndRestore(tmp_path / "b")]))


def test_csv_logger_goes_on_with_its_file(tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        return [keras.callbacks.CSVLogger(tmp_path / "log.csv"), BackupAndRestore(tmp_path / "backup", save_freq=2)]

    first = callbacks()
    with pytest.raises(Interrupted):
        program(1, INPUTS["arrays"], [Interrupts((1, 3)), *first])
    first[0].on_train_end()  # closes the file, as the end of a process does
    _, history = program(1, INPUTS["arrays"], callbacks())
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert [float(row["mae"]) for row in rows] == history["mae"]


# What can go wrong -------------------------------------------------------------------------------


def half_done(folder: Path) -> None:
    with pytest.raises(Interrupted):
        program(1, INPUTS["arrays"], [Interrupts((1, 3)), BackupAndRestore(folder, save_freq=2)])


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_two_generations_are_kept_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    half_done(tmp_path)
    names = sorted(files(tmp_path))
    assert [re.sub(r"\d+", "N", name) for name in names] == [
        "backup-N.safetensors",
        "backup-N.safetensors",
        "checkpoint",
    ]
    newest = Path(f"{list(read_state(str(tmp_path)).saved)[-1]}.safetensors")
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="is damaged"):
        again, told = program(2, INPUTS["arrays"], [BackupAndRestore(tmp_path, save_freq=2)])
    assert (values(again), told) == undisturbed("arrays")


@pytest.mark.parametrize("foreign", ["notes.txt", "another checkpoint"])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, foreign: str) -> None:
    if foreign == "notes.txt":
        (tmp_path / foreign).write_text("keep")
    else:
        Checkpoint(step=keras.Variable(1)).save(tmp_path / "ckpt")
    before = files(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds something else: (notes|ckpt-1)(.|\n)*separate folder"):
        program(1, INPUTS["arrays"], [BackupAndRestore(tmp_path)])
    assert files(tmp_path) == before


def test_a_backup_of_another_model_is_refused(tmp_path: Path) -> None:
    half_done(tmp_path)
    before = files(tmp_path)
    with stratagem.MirroredStrategy(["cpu:0"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    weights = model.get_weights()
    with pytest.raises(InputError, match=r"is of another model or optimizer: .* and \d+ more"):
        model.fit(X, Y, batch_size=4, verbose=0, callbacks=[BackupAndRestore(tmp_path)])
    assert all(map(np.array_equal, weights, model.get_weights()))
    assert files(tmp_path) == before


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)


class DiskFills(keras.callbacks.Callback):
    """The disk is full from epoch 1, batch 1 on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if (self._epoch, batch) == (1, 1):
            for thread in threading.enumerate():
                if thread.name == "stratagem-checkpoint":
                    thread.join()
            full_disk(self._monkeypatch)


def test_a_full_disk_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fills = DiskFills(monkeypatch)
    with pytest.raises(Interrupted):
        program(1, INPUTS["arrays"], [fills, Interrupts((2, 1)), BackupAndRestore(tmp_path, save_freq=3)])
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 2
    assert "No space left on device" in said[0]
    monkeypatch.undo()
    again, told = program(2, INPUTS["arrays"], [BackupAndRestore(tmp_path, save_freq=3)])
    assert (values(again), told) == undisturbed("arrays")


def test_a_first_backup_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_disk(monkeypatch)
    steps = PerBatch([])
    with pytest.raises(CheckpointError, match="No space left on device"):
        program(1, INPUTS["arrays"], [BackupAndRestore(tmp_path), steps])
    assert steps.seen == []


@pytest.mark.parametrize("save_freq", [0, -1, False, True, 2.5, "batch"])
def test_wrong_save_freq(save_freq: Any) -> None:
    with pytest.raises(InputError, match=re.escape(f"save_freq={save_freq!r}")):
        BackupAndRestore("backup", save_freq=save_freq)


def test_two_of_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 BackupAndRestore"):
        program(1, INPUTS["arrays"], [BackupAndRestore(tmp_path / "a"), BackupAndRestore(tmp_path / "b")])


def test_steps_that_no_longer_fit(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        program(1, INPUTS["arrays"], [Interrupts((1, 4)), BackupAndRestore(tmp_path, save_freq=3)])
    with pytest.raises(InputError, match="after batch 3 of an epoch, with steps_per_execution=1; now it is 2"):
        program(1, INPUTS["arrays"], [BackupAndRestore(tmp_path)], steps_per_execution=2)


def test_state_of_a_callback_that_cannot_be_saved(tmp_path: Path) -> None:
    own = Own()
    own.get_state = lambda: object()
    with pytest.raises(InputError, match=r"get_state\(\) of the callback Own returned .<object"):
        program(1, INPUTS["arrays"], [own, BackupAndRestore(tmp_path)])


def test_whatever_goes_wrong_with_the_folder_is_told_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Exception | None] = []

    def note(failure: Exception | None) -> None:
        told.append(failure)
        if failure is not None:
            raise failure

    def fails(self: object) -> None:
        raise PermissionError("of the system")

    monkeypatch.setattr(backup, "finish_together", note)
    monkeypatch.setattr(backup.Backups, "open", fails)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(PermissionError, match="of the system"):
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[BackupAndRestore(tmp_path / "backup")])
    assert [type(failure) for failure in told] == [PermissionError]


@pytest.mark.thorough
def test_made_within_the_call_of_fit_before_anything_else(tmp_path: Path) -> None:
    program = """
import sys
import stratagem, numpy as np
from stratagem import keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((8, 2), "float32")
model.fit(x, x[:, :1], verbose=0, callbacks=[stratagem.callbacks.BackupAndRestore(sys.argv[1])])
"""
    ended = run_python("-c", program, str(tmp_path / "backup"), home=tmp_path)
    assert ended.returncode == 1
    assert "Write backup = BackupAndRestore(...) on a line before model.fit(" in ended.stderr
