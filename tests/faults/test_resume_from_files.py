"""Killed in the midst of an epoch over files, and gone on with more workers: each example counts once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.data import ArrayRecordDataset, Dataset, TFRecordDataset, write_array_record, write_tfrecord
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

COUNTS = (17, 0, 30, 5, 31)
ROWS, BATCH = sum(COUNTS), 6
KILLED_AT, SAVE_FREQ = 7, 3


def _paths(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files of each of two formats."""
    paths = [str(folder / f"{number}") for number in range(len(COUNTS))]
    return paths[:2], paths[2:]


def _write(folder: Path) -> None:
    tfrecords, array_records = _paths(folder)
    for path, count, end in zip(tfrecords + array_records, COUNTS, np.cumsum(COUNTS).tolist(), strict=True):
        records = [str(row).encode() for row in range(end - count, end)]
        (write_tfrecord if path in tfrecords else write_array_record)(path, records)


def _dataset(folder: Path) -> Dataset:
    """Return the shuffled batches. Without a seed: the order is that of the first start."""
    tfrecords, array_records = _paths(folder)
    records = TFRecordDataset(tfrecords).concatenate(ArrayRecordDataset(array_records))

    def example(record: bytes) -> tuple[np.ndarray, np.int32]:
        row = int(record)
        return np.sin(np.arange(3) + row).astype("float32"), np.int32(row)

    return records.shuffle(ROWS).map(example, num_parallel_calls=2).batch(BATCH)


def program(folder: str, kill: bool) -> dict[str, Any]:
    """Train one epoch, and die in the midst of it."""
    import keras
    from keras import ops

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()

    class Seen(keras.metrics.Metric):
        """How often each row was trained on. A backup keeps it, with everything else."""

        def __init__(self) -> None:
            super().__init__(name="seen")
            self.times = self.add_variable((ROWS,), "zeros", name="times")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.times.assign(self.times + ops.sum(ops.one_hot(ops.reshape(y_true, (-1,)), ROWS), axis=0))

        def result(self) -> Any:
            return ops.sum(self.times)

    class Dies(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if kill and batch == KILLED_AT and strategy.worker_index == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    with strategy.scope():
        seen = Seen()
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(keras.optimizers.SGD(0.001), "mse", metrics=[seen])
    backup = stratagem.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=SAVE_FREQ)
    history = model.fit(_dataset(Path(folder)), verbose=0, callbacks=[Dies(), backup]).history
    return {
        "times": np.asarray(seen.times.value).tolist(),
        "history": history,
        "weights": [np.asarray(value) for value in model.get_weights()],
    }


def test_two_workers_are_killed_and_three_go_on(tmp_path: Path) -> None:
    _write(tmp_path)
    killed = run_workers(program, 2, args=[str(tmp_path), True], check=False)
    assert killed[1].returncode == -signal.SIGKILL, killed[1].output
    results = run_workers(program, 3, args=[str(tmp_path), False])
    assert "behind batch 6, from a backup" in results[0].output
    ended = [result.value for result in results]
    for worker in ended:
        assert worker["times"] == [1.0] * ROWS, "each example of the epoch counts once in the weights that are left"
        assert worker["history"] == ended[0]["history"]
        for weight, expected in zip(worker["weights"], ended[0]["weights"], strict=True):
            np.testing.assert_array_equal(weight, expected)
