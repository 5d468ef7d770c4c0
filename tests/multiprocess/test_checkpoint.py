"""Two workers save and restore as one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import CheckpointError, PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

X = np.linspace(-1, 1, 24, dtype="float32").reshape(8, 3)
Y = X.sum(1, keepdims=True)


def _strategy() -> Any:
    import stratagem

    return stratagem.MultiWorkerMirroredStrategy()


def _trained(strategy: Any, seed: int = 5) -> Any:
    import keras

    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), loss="mse")
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0)
    return model


def _values(model: Any) -> list[list[float]]:
    return [np.asarray(v.value).ravel().tolist() for v in (*model.variables, *model.optimizer.variables)]


def everybody_saves(folder: str) -> dict[str, Any]:
    import keras

    from stratagem.train import Checkpoint, CheckpointManager, CheckpointOptions, latest_checkpoint

    strategy = _strategy()
    model = _trained(strategy)
    writes: list[str] = []
    import stratagem.checkpoint.storage as storage

    write = storage.write
    storage.write = lambda path, *rest: (writes.append(path), write(path, *rest))[1]  # pyright: ignore
    checkpoint = Checkpoint(model=model, epoch=keras.Variable(1))
    manager = CheckpointManager(checkpoint, folder, max_to_keep=2)
    paths = [manager.save(), manager.save(options=CheckpointOptions(enable_async=True)), manager.save()]
    saved = _values(model)
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0)
    status = checkpoint.restore(latest_checkpoint(folder))
    status.assert_consumed()
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0)
    return {"paths": paths, "writes": writes, "saved": saved, "after": _values(model), "kept": manager.checkpoints}


@pytest.mark.quick
def test_one_file_appears(tmp_path: Path) -> None:
    chief, other = (result.value for result in run_workers(everybody_saves, 2, args=[str(tmp_path)]))
    assert chief["paths"] == other["paths"] == [str(tmp_path / f"ckpt-{number}") for number in (1, 2, 3)]
    assert (len(chief["writes"]), other["writes"]) == (3, [])
    assert chief["kept"] == other["kept"] == chief["paths"][1:]
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        *(f"ckpt-{number}.{kind}" for number in (2, 3) for kind in ("index", "safetensors")),
    ]
    assert chief["saved"] == other["saved"]
    assert chief["after"] == other["after"]


def _shuffled() -> Any:
    """Return the data of a program, with a seed of this process's own."""
    from stratagem.data import Dataset

    return Dataset.from_tensor_slices(np.arange(22)).shuffle(22).batch(4)


def _accumulators(model: Any, folder: str) -> list[list[float]]:
    """Save at each step of an epoch of 4 steps that updates at the third; return what was accumulated at each."""
    import keras

    from stratagem.checkpoint import storage
    from stratagem.train import Checkpoint, CheckpointManager

    manager = CheckpointManager(Checkpoint(model=model), folder, max_to_keep=None)
    save = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: manager.save())
    model.fit(X, Y, batch_size=2, shuffle=False, verbose=0, callbacks=[save])
    saved = [storage.decode(storage.read(path), path).arrays for path in manager.checkpoints]
    return [
        np.concatenate([np.ravel(a) for name, a in sorted(arrays.items()) if name.endswith("accumulator")]).tolist()
        for arrays in saved
    ]


def _accumulating() -> Any:
    import keras

    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), loss="mse")
    return model


def goes_on_in_the_middle(folder: str) -> dict[str, Any]:
    from stratagem.train import Checkpoint

    strategy = _strategy()
    iterator = iter(strategy.experimental_distribute_dataset(_shuffled()))
    checkpoint = Checkpoint(iterator=iterator)
    checkpoint.restore(f"{folder}/three-1").assert_consumed()
    rows = np.asarray(strategy.gather(next(iterator), axis=0)).tolist()
    path = checkpoint.save(f"{folder}/two")
    with strategy.scope():
        model = _accumulating()
    return {"rows": rows, "path": path, "accumulators": _accumulators(model, f"{folder}/accumulating")}


def test_a_pass_and_an_update_go_on_in_the_middle(tmp_path: Path) -> None:
    """A pass begun on three replicas goes on on two workers with two each, and ends without a strategy."""
    import stratagem
    from stratagem.train import Checkpoint

    three = stratagem.MirroredStrategy(["cpu:0", "cpu:1", "cpu:2"])
    iterator = iter(three.experimental_distribute_dataset(_shuffled()))
    for _ in range(2):
        next(iterator)
    Checkpoint(iterator=iterator).save(tmp_path / "three")
    rest = [np.asarray(three.gather(element, axis=0)).tolist() for element in iterator]
    results = run_workers(goes_on_in_the_middle, 2, args=[str(tmp_path)], devices_per_worker=2)
    chief, other = (result.value for result in results)
    assert chief == other
    assert chief["rows"] == rest[0]
    elements = iter(_shuffled())
    Checkpoint(iterator=elements).restore(chief["path"]).assert_consumed()
    assert [element.tolist() for element in elements] == rest[1:]
    assert len(rest) == 4

    expected = _accumulators(_accumulating(), str(tmp_path / "plain"))
    np.testing.assert_allclose(chief["accumulators"], expected, rtol=1e-5, atol=1e-6)
    assert [bool(np.any(step)) for step in expected] == [True, True, False, True]


def tutorial(folder: str) -> list[Any]:
    """Save as https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras does."""
    from stratagem.train import Checkpoint, CheckpointManager, latest_checkpoint

    strategy = _strategy()
    model = _trained(strategy)
    task_id = strategy.cluster_resolver.task_id
    write_dir = folder if task_id == 0 else os.path.join(folder, f"workertemp_{task_id}")
    checkpoint = Checkpoint(model=model)
    manager = CheckpointManager(checkpoint, directory=write_dir, max_to_keep=1)
    path = manager.save()
    wrote = os.path.exists(f"{path}.safetensors")
    if task_id != 0:
        shutil.rmtree(write_dir)
    latest = latest_checkpoint(folder)
    checkpoint.restore(latest).assert_consumed()
    return [os.path.relpath(str(path), folder), wrote, latest]


def test_pattern_of_the_tutorials(tmp_path: Path) -> None:
    chief, other = (result.value for result in run_workers(tutorial, 2, args=[str(tmp_path)]))
    assert chief == ["ckpt-1", True, str(tmp_path / "ckpt-1")]
    assert other == ["workertemp_1/ckpt-1", True, str(tmp_path / "ckpt-1")]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "ckpt-1.index", "ckpt-1.safetensors"]


def each_sees_its_own_disk(folder: str) -> tuple[Any, bool, list[Any]]:
    """The same path means another disk on each worker; the other one's holds an older run."""
    import stratagem.checkpoint.collective_io as together
    from stratagem.train import Checkpoint, CheckpointManager

    together.CHUNK_BYTES = 100  # pyright: ignore[reportAttributeAccessIssue]
    strategy = _strategy()
    own = Path(folder, str(strategy.worker_index))
    own.mkdir()
    os.chdir(own)
    model = _trained(strategy)
    manager = CheckpointManager(Checkpoint(model=model), "run", max_to_keep=3)
    # Places are compared as absolute paths: leave out where each worker stands, as on two machines.
    together.os.path.abspath = os.path.normpath  # pyright: ignore[reportAttributeAccessIssue]
    path = manager.save()
    saw = os.path.exists(f"{path}.safetensors")
    saved = _values(model)
    again = _trained(strategy, seed=6)
    restored = CheckpointManager(Checkpoint(model=again), "run", max_to_keep=3).restore_or_initialize()
    return restored, saw, [saved, _values(again)]


def test_only_the_chief_sees_the_folder(tmp_path: Path) -> None:
    results = [result.value for result in run_workers(each_sees_its_own_disk, 2, args=[str(tmp_path)])]
    assert [(restored, saw) for restored, saw, _ in results] == [("run/ckpt-1", True), ("run/ckpt-1", False)]
    saved, again = results[0][2]
    assert results[1][2] == [saved, again]
    assert again == saved


def disk_of_the_chief_is_full(folder: str, in_background: bool) -> list[str]:
    import keras

    import stratagem.checkpoint.storage as storage
    from stratagem.train import Checkpoint, CheckpointOptions

    strategy = _strategy()
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    if strategy.is_chief:

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        storage.os.fsync = full  # pyright: ignore[reportAttributeAccessIssue]
    said = []
    for then in (lambda: checkpoint.restore(None), checkpoint.sync, lambda: checkpoint.save(f"{folder}/ckpt")):
        try:
            checkpoint.save(f"{folder}/ckpt", CheckpointOptions(enable_async=in_background))
            then()
        except CheckpointError as error:
            said.append(str(error).splitlines()[0])
    return said


@pytest.mark.parametrize("in_background", [False, True])
def test_full_disk_of_the_chief_is_an_error_on_all(tmp_path: Path, in_background: bool) -> None:
    arguments = [str(tmp_path), in_background]
    chief, other = (result.value for result in run_workers(disk_of_the_chief_is_full, 2, args=arguments))
    assert len(chief) == len(other) == 3
    for own, heard in zip(chief, other, strict=True):
        assert "could not be written: [Errno 28] No space left on device" in own
        assert heard.startswith("worker 0")
        assert heard.endswith(own)
    assert os.listdir(tmp_path) == []


def one_worker_does_not_save(folder: str) -> None:
    import keras

    import stratagem
    from stratagem.train import Checkpoint

    strategy = stratagem.MultiWorkerMirroredStrategy()
    checkpoint = Checkpoint(x=keras.Variable(1.0))
    if strategy.is_chief:
        checkpoint.save(f"{folder}/ckpt")
    else:
        strategy.from_all("something else", 1)


def test_worker_that_does_not_save_is_named(tmp_path: Path) -> None:
    said = r"worker 0 came to values 'save a checkpoint' and worker 1 came to values 'something else'\."
    with pytest.raises(PeerError, match=said):
        run_workers(one_worker_does_not_save, 2, args=[str(tmp_path)])
