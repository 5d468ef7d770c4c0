"""Workers killed while they train, and started again: the run ends as one that nothing happened to."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

EPOCHS = 3
STEPS = 7
Kill = tuple[int, int, int | None]
"""Which worker (or ALL), in which epoch, behind which batch; None for its end."""

ALL = -1


def program(folder: str, seed: int, kill: Kill | None = None, own_folders: bool = False) -> dict[str, Any]:
    """Train as a user's program does, and die on the way by kill -9."""
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    if own_folders:  # the same path means another disk on each worker
        own = Path(folder, str(strategy.worker_index))
        own.mkdir(exist_ok=True)
        os.chdir(own)
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(44, 5)).astype("float32"), rng.normal(size=(44, 1)).astype("float32")
    # No seed: the order is that of the first start.
    dataset = stratagem.data.Dataset.from_tensor_slices((x, y)).shuffle(44).repeat().batch(8)

    def label(y_true: Any, y_pred: Any) -> Any:
        return y_true

    class Watches(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[tuple[float, float]] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.told.append((logs["loss"], logs["label"]))
            self.die_at(batch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.die_at(None)

        def die_at(self, batch: int | None) -> None:
            if kill is None or kill[1:] != (self.epoch, batch):
                return
            # Of all workers the chief kills the others first: a worker that saw the chief die would end by itself.
            if strategy.worker_index == (0 if kill[0] == ALL else kill[0]):
                backup.end_session()  # what is being written in the background counts in this test
                for pid in [*others, os.getpid()] if kill[0] == ALL else [os.getpid()]:
                    os.kill(pid, signal.SIGKILL)

    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=[label])
    watches = Watches()
    pids = np.asarray(strategy.gather(np.array([os.getpid()], "int32"), axis=0)).tolist()
    others = [pid for pid in pids if pid != os.getpid()]
    backup = stratagem.callbacks.BackupAndRestore("backup" if own_folders else f"{folder}/backup", save_freq=3)
    history = model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[watches, backup])
    return {
        "values": [np.asarray(v.value).tobytes() for v in (*model.variables, *model.optimizer.variables)],
        "weights": [np.asarray(v.value) for v in model.variables],
        "history": history.history,
        "told": watches.told,
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return [r.value for r in run_workers(program, 2, args=[str(tmp_path_factory.mktemp("undisturbed")), 1])]


@pytest.fixture
def undisturbed(both: list[dict[str, Any]]) -> dict[str, Any]:
    return both[0]


def test_nobody_is_killed(both: list[dict[str, Any]]) -> None:
    chief, other = both
    assert chief["values"] == other["values"]
    assert chief["told"] == other["told"]
    assert len(chief["told"]) == EPOCHS * STEPS


@pytest.mark.quick
def test_killed_within_an_epoch_and_at_the_end_of_one(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    """First the chief, then the whole cluster; only the chief can see the backups."""
    kills: list[Kill] = [(0, 0, 4), (ALL, 1, None)]
    for seed, kill in enumerate(kills, start=1):
        ended = run_workers(program, 2, args=[str(tmp_path), seed, kill, True], check=False)
        assert ended[0].returncode == -signal.SIGKILL, ended[0].output
        assert (ended[1].returncode == -signal.SIGKILL) == (kill[0] == ALL)
    chief, other = run_workers(program, 2, args=[str(tmp_path), 9, None, True])
    assert chief.value["values"] == undisturbed["values"]
    assert other.value["values"] == undisturbed["values"]
    assert chief.value["history"] == other.value["history"] == undisturbed["history"]
    assert chief.value["told"] == undisturbed["told"]
    assert "Going on at epoch 2, behind batch 5, from a backup" in chief.output
    assert [os.listdir(tmp_path / worker) for worker in "01"] == [[], []]


def test_on_another_number_of_workers(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    runs: list[tuple[int, int, Kill]] = [(1, 2, (1, 0, 4)), (7, 1, (0, 1, 5))]
    for seed, workers, kill in runs:
        ended = run_workers(program, workers, args=[str(tmp_path), seed, kill], check=False)
        assert ended[kill[0]].returncode == -signal.SIGKILL, ended[kill[0]].output
    resumed = run_workers(program, 2, args=[str(tmp_path), 8])[0].value
    losses, labels = np.transpose(resumed["told"])
    expected_losses, expected_labels = np.transpose(undisturbed["told"])
    np.testing.assert_allclose(labels, expected_labels, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for weights, expected in zip(resumed["weights"], undisturbed["weights"], strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-3, atol=1e-5)
    assert os.listdir(tmp_path) == []
