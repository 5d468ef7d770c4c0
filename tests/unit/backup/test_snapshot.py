from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.backup.snapshot import Snapshot
from stratagem.callbacks import BackupAndRestore
from stratagem.checkpoint import storage
from stratagem.checkpoint.storage import Contents
from stratagem.core.errors import CheckpointError, InputError

X = np.ones((16, 2), "float32")


class Interrupted(Exception):
    """What ends a `fit` in these tests."""


def fit(folder: Path, *, dies: bool = False, rows: int = 16) -> Any:
    """Train three epochs of four batches (fewer of fewer rows), with a backup behind each third batch."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def die(epoch: int, logs: Any) -> None:
        if dies:
            raise Interrupted

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=die), BackupAndRestore(folder, save_freq=3)]
    return model.fit(X[:rows], X[:rows, :1], batch_size=4, epochs=3, verbose=0, callbacks=callbacks)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `fit` that was interrupted behind batch 3 of epoch 1."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(Interrupted):
        fit(folder, dies=True)
    return folder


@pytest.fixture
def contents(interrupted: Path) -> Contents:
    path = str(interrupted / "backup-2")
    return storage.decode(storage.read(path), path)


def test_a_backup_says_where_training_was(contents: Contents) -> None:
    progress = Snapshot(contents, "backup-2").progress
    assert (progress.epoch, progress.batch, progress.within_epoch) == (0, 3, True)


def progress(**said: Any) -> Callable[[dict[str, Any]], None]:
    return lambda metadata: metadata["backup"].update(said)


@pytest.mark.parametrize(
    "change",
    [
        progress(epoch=-3),
        progress(epoch=1.5),
        progress(epoch="two"),
        progress(batch=-2),
        progress(stopped=1),
        progress(more=1),
        lambda metadata: metadata["backup"].pop("epoch"),
        lambda metadata: metadata.update(backup=[1]),
        lambda metadata: metadata.pop("inputs"),
        lambda metadata: metadata.update(inputs=[]),
        lambda metadata: metadata.update(inputs=[{"x": 1}]),
        lambda metadata: metadata["inputs"][0].update(taken="x"),
        lambda metadata: metadata.update(callbacks=[1]),
        lambda metadata: metadata.update(callbacks={"a": {"attributes": {"b": {"array": "lost"}}}}),
        lambda metadata: metadata.update(callbacks={"a": {"variables": {"b": ["lost"]}}}),
        lambda metadata: metadata.update(callbacks={"a": 1}),
        lambda metadata: metadata.pop("random"),
        lambda metadata: metadata.update(random={"dict": [["python", [1, 2, 3]]]}),
        lambda metadata: metadata.pop("steps_per_execution"),
    ],
)
def test_what_was_forged_is_refused_before_anything_is_restored(
    change: Callable[[dict[str, Any]], object], contents: Contents
) -> None:
    metadata = json.loads(json.dumps(contents.metadata))
    change(metadata)
    with pytest.raises(
        CheckpointError, match=r"backup-2' is not damaged, but cannot be understood(.|\n)*Nothing was restored"
    ):
        Snapshot(Contents(metadata, contents.arrays), "backup-2")


@pytest.mark.parametrize("metadata", [5, [], {}, "backup"])
def test_another_checkpoint_is_no_backup(metadata: Any, contents: Contents) -> None:
    with pytest.raises(CheckpointError, match="is a checkpoint, but not a backup of `fit`"):
        Snapshot(Contents(metadata, contents.arrays), "backup-2")


def test_an_epoch_that_has_become_shorter_is_refused(interrupted: Path) -> None:
    with pytest.raises(InputError, match=r"made after batch 3 of an epoch; now an epoch has 2\.(.|\n)*steps_per_epoch"):
        fit(interrupted, rows=8)
    assert (interrupted / "backup-2.safetensors").exists()
    assert len(fit(interrupted).history["loss"]) == 3
    assert not interrupted.exists()
