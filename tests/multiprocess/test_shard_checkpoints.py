"""Checkpoints of which each worker writes its shards: no gather, read by other workers, whole for everybody else."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.multiprocess.test_shards import BATCH, examples, fit, make

from stratagem.checkpoint import shard_files, storage
from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def goes_on(model: Any) -> list[float]:
    return model.fit(*examples(), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]


def counted(module: Any, name: str) -> list[Any]:
    """Let a function note what it returns."""
    function, returned = getattr(module, name), []

    @functools.wraps(function)
    def noting(*args: Any, **kwargs: Any) -> Any:
        returned.append(function(*args, **kwargs))
        return returned[-1]

    setattr(module, name, noting)
    return returned


def put_together() -> list[int]:
    """Note the number of each value that is put together from now on."""
    from stratagem.mesh.lending import lend_by, put_together_by_xla

    made: list[int] = []

    def noting(values: Any, use: Any) -> None:
        def note(number: int, whole: np.ndarray) -> None:
            made.append(number)
            use(number, whole)

        put_together_by_xla(values, note)

    lend_by(noting)
    return made


def saves(stage: str, folder: str, apart: bool = False) -> dict[str, Any]:
    from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions

    strategy, model = make(stage, average=False)
    if apart:  # the same path means another disk on each worker
        folder = f"{folder}/{strategy.worker_index}"
        os.mkdir(folder)
        os.chdir(folder)
        folder = "."
    losses = fit(model, 1)
    wholes, written = put_together(), counted(storage, "write_shard")
    manager = CheckpointManager(Checkpoint(model=model), folder, max_to_keep=2)
    manager.save()
    first = manager.save(options=CheckpointOptions(enable_async=True))
    second = goes_on(model)  # while that is written
    last = manager.save()
    listed = sorted(os.listdir(folder))
    after = goes_on(model)
    return {
        "losses": losses,
        "second": second,
        "after": after,
        "paths": [first, last],
        "wholes": len(wholes),
        "files": len(written),
        "listed": listed,
    }


def restores(stage: str | None, min_size: int, path: str, trained: bool) -> dict[str, Any]:
    import keras

    import stratagem

    keras.utils.set_random_seed(3)
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, shard_min_size=stage and min_size)
    with strategy.scope():
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(32), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((16,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    if trained:
        fit(model, 1)
    else:
        model.optimizer.build(model.trainable_variables)
    read = counted(shard_files.ShardFile, "read")
    stratagem.train.Checkpoint(model=model).restore(path).assert_consumed()
    parts = sum(part.nbytes for part in read)
    return {"losses": goes_on(model), "read": parts}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[dict[str, Any]]]]:
    found = {}
    for stage in ("optimizer", "parameters"):
        folder = tmp_path_factory.mktemp(stage)
        found[stage] = folder, [r.value for r in run_workers(saves, 2, args=[stage, str(folder)], timeout_seconds=170)]
    return found


@pytest.mark.parametrize("stage", ["optimizer", "parameters"])
def test_each_worker_writes_its_shards_and_nothing_is_gathered(saved: Any, stage: str) -> None:
    folder, (chief, other) = saved[stage]
    assert chief["paths"] == other["paths"] == [f"{folder}/ckpt-2", f"{folder}/ckpt-3"]
    assert (chief["wholes"], chief["files"]) == (other["wholes"], other["files"]) == (0, 3)
    for number in (2, 3):
        contents = storage.decode(storage.read(f"{folder}/ckpt-{number}"), "a checkpoint")
        files = [file.file for file in shard_files.files_of(contents.shards, f"{folder}/ckpt-{number}")]
        assert [file.name in chief["listed"] for file in files] == [True, True]
        sizes = [file.stat().st_size for file in files]
        divisible = 4 * (16 * 64 + 64 * 32 + 64 + 32 * 10)
        held = divisible // 2 * (2 if stage == "optimizer" else 3)
        assert all(held < size < held + 4000 for size in sizes), (sizes, held)
    assert len(chief["listed"]) == 1 + 2 * 4  # the list; file, index and two of shards of each


RESTORES = [
    ("optimizer", "parameters", 64, 2, True),
    ("optimizer", "parameters", 64, 4, False),
    ("parameters", None, 64, 1, False),
    ("parameters", "parameters", 64, 2, True),
    ("parameters", "optimizer", 1024, 2, True),
]


@pytest.mark.parametrize(("first", "then", "min_size", "workers", "trained"), RESTORES)
def test_it_opens_with_other_workers_stages_and_sizes(
    saved: Any, first: str, then: str | None, min_size: int, workers: int, trained: bool
) -> None:
    folder, (before, _) = saved[first]
    results = run_workers(restores, workers, args=[then, min_size, f"{folder}/ckpt-3", trained], timeout_seconds=170)
    for result in results:
        same = workers == 2
        np.testing.assert_allclose(result.value["losses"], before["after"], rtol=0 if same else 1e-5)
    if (first, then, min_size) == ("parameters", "parameters", 64):
        divisible = 4 * (16 * 64 + 64 * 32 + 64 + 32 * 10)
        assert [result.value["read"] for result in results] == [3 * divisible // 2] * 2


def test_others_see_whole_values(saved: Any, tmp_path: Path) -> None:
    """One process restores such a checkpoint, writes ordinary files, and reads single values."""
    import keras

    import stratagem
    from stratagem import tf

    folder, (before, _) = saved["parameters"]
    path = latest_checkpoint(folder)
    assert path == f"{folder}/ckpt-3"
    layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(32), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    stratagem.train.Checkpoint(model=model).restore(path).assert_consumed()
    kernel = model.layers[1].kernel.numpy()
    model.save(tmp_path / "whole.keras")
    again = keras.models.load_model(tmp_path / "whole.keras")
    np.testing.assert_array_equal(again.layers[1].kernel.numpy(), kernel)
    np.testing.assert_allclose(goes_on(again), before["after"], rtol=1e-5)
    name = "model/layers/1/kernel"
    assert (name, [64, 32]) in tf.train.list_variables(path)
    np.testing.assert_array_equal(tf.train.load_variable(path, name), kernel)
    np.testing.assert_array_equal(tf.train.load_checkpoint(str(folder)).get_tensor(name), kernel)
    assert next(stratagem.train.checkpoints_iterator(folder, timeout=0)) == path


def test_without_a_common_disk_the_chief_writes_all(tmp_path: Path) -> None:
    chief, other = run_workers(saves, 2, args=["parameters", str(tmp_path), True], timeout_seconds=170)
    assert (chief.value["files"], other.value["files"]) == (0, 0)
    assert chief.value["wholes"] == other.value["wholes"] > 0
    assert "With the same path on all workers" in chief.output
    contents = storage.decode(storage.read(str(tmp_path / "0" / "ckpt-3")), "a checkpoint")
    assert contents.shards is None


def backs_up(stage: str | None, folder: str, epochs: int, dies: int | None) -> dict[str, Any]:
    """Train with backups behind each second batch; worker `dies` kills itself behind the eighth."""
    import signal

    import keras

    import stratagem

    strategy, model = make(stage, average=False)
    wholes = put_together()
    backup = stratagem.callbacks.BackupAndRestore(folder, save_freq=2, delete_checkpoint=False)

    seen: list[int] = []

    def die(batch: int, logs: Any) -> None:
        seen.append(batch)
        if dies == strategy.worker_index and len(seen) == 8:
            backup.end_session()  # what is being written in the background counts in this test
            os.kill(os.getpid(), signal.SIGKILL)

    x, y = examples()
    # A callback that may read the model lets all of it be put together behind an epoch.
    callbacks = [backup] if dies is None else [backup, keras.callbacks.LambdaCallback(on_train_batch_end=die)]
    history = model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=callbacks).history["loss"]
    count = len(wholes)
    path = stratagem.train.Checkpoint(model=model).save(f"{folder}-end/ckpt")
    return {"history": history, "wholes": count, "end": path}


def values(path: str) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in shard_files.load_whole(path).arrays.items()}


@pytest.mark.parametrize("stage", ["optimizer", "parameters"])
def test_backups_resume_bit_for_bit_on_the_same_workers(tmp_path: Path, stage: str) -> None:
    [undisturbed, _] = run_workers(backs_up, 2, args=[stage, str(tmp_path / "whole"), 3, None], timeout_seconds=120)
    dead = run_workers(backs_up, 2, args=[stage, str(tmp_path / "run"), 3, 1], timeout_seconds=120, check=False)
    assert dead[1].returncode == -9
    resumed = run_workers(backs_up, 2, args=[stage, str(tmp_path / "run"), 3, None], timeout_seconds=120)
    assert "Going on at epoch 2, behind batch" in resumed[0].output
    for result in resumed:
        assert result.value["history"] == undisturbed.value["history"]
        assert result.value["wholes"] == 0
    expected, found = values(undisturbed.value["end"]), values(resumed[0].value["end"])
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    kept = os.listdir(tmp_path / "run")
    assert len([name for name in kept if ".shard-" in name]) == 2 * 2
    assert len([name for name in kept if ".shard-" not in name]) == 3  # two backups, and their list


@pytest.mark.parametrize(("then", "workers"), [(None, 1), ("optimizer", 4)])
def test_backups_resume_with_other_workers(tmp_path: Path, then: str | None, workers: int) -> None:
    [undisturbed, _] = run_workers(backs_up, 2, args=["parameters", str(tmp_path / "whole"), 3, None])
    run_workers(backs_up, 2, args=["parameters", str(tmp_path / "run"), 3, 0], check=False)
    resumed = run_workers(backs_up, workers, args=[then, str(tmp_path / "run"), 3, None], timeout_seconds=170)
    assert "Going on at epoch 2, behind batch" in resumed[0].output
    np.testing.assert_allclose(resumed[0].value["history"], undisturbed.value["history"], rtol=1e-5)
    expected, found = values(undisturbed.value["end"]), values(resumed[0].value["end"])
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
