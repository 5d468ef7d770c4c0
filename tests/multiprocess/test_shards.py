"""Workers that hold shards of a model: what each holds, files that they write together, resuming on other workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.checkpoint.shard_files import load
from stratagem.core.errors import PeerError, UsageError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

ROWS, BATCH = 66, 16


def make(stage: str | None, *, average: bool = True) -> tuple[Any, Any]:
    import keras

    import stratagem

    keras.utils.set_random_seed(1)
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage, shard_min_size=stage and 64)
    with strategy.scope():
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(32), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((16,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, use_ema=average), loss)
    return strategy, model


def examples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    return rng.rand(ROWS, 16).astype("float32"), rng.randint(0, 10, ROWS)


def fit(model: Any, epochs: int, *callbacks: Any) -> list[float]:
    x, y = examples()
    history = model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[*callbacks])
    return history.history["loss"]


def bytes_held(variables: Any) -> int:
    return sum(shard.data.nbytes for variable in variables for shard in variable.value.addressable_shards)


def saves_everything(stage: str | None, folder: str) -> dict[str, Any]:
    import keras

    import stratagem

    _, model = make(stage)
    read: list[float] = []

    class Reads(keras.callbacks.Callback):
        """Reads weights and slots after an epoch, on whichever worker it is."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            read.append(sum(float(np.asarray(each.value).sum()) for each in self.model.optimizer.variables))
            read.append(float(self.model.get_weights()[0].sum()))

    every_epoch = keras.callbacks.ModelCheckpoint(f"{folder}/epoch{{epoch}}.keras")
    early = keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True)
    losses = fit(model, 2, every_epoch, Reads(), early)
    slots = model.optimizer.variables
    model.save(f"{folder}/end.keras")
    model.save_weights(f"{folder}/end.weights.h5")
    path = stratagem.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
    evaluated = model.evaluate(*examples(), batch_size=BATCH, verbose=0)
    held = bytes_held(slots), bytes_held(model.weights)
    after = model.fit(*examples(), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]

    same = make(stage)[1]
    same.optimizer.build(same.trainable_variables)
    stratagem.train.Checkpoint(model=same).restore(path).assert_consumed()
    again = same.fit(*examples(), batch_size=BATCH, shuffle=False, verbose=0).history["loss"]
    return {
        "losses": losses,
        "read": read,
        "evaluated": evaluated,
        "held": held,
        "after": after,
        "again": again,
        "predicted": model.predict(examples()[0][:5], verbose=0),
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, tuple[Path, list[dict[str, Any]]]]:
    found = {}
    for stage in (None, "optimizer", "parameters"):
        folder = tmp_path_factory.mktemp(str(stage))
        results = run_workers(saves_everything, 2, args=[stage, str(folder)], timeout_seconds=170)
        found[stage] = folder, [result.value for result in results]
    return found


@pytest.mark.parametrize("stage", ["optimizer", "parameters"])
def test_everything_is_as_without_shards_to_the_bit(outcomes: Any, stage: str) -> None:
    expected = outcomes[None][1][0]
    for found in outcomes[stage][1]:
        assert found["again"] == found["after"]
        for name in ("losses", "read", "evaluated", "after"):
            assert found[name] == expected[name], name
        np.testing.assert_array_equal(found["predicted"], expected["predicted"])


def test_each_worker_holds_its_shards_only(outcomes: Any) -> None:
    slots, weights = outcomes[None][1][0]["held"]
    divisible = 4 * (16 * 64 + 64 * 32 + 64 + 32 * 10)  # all but biases of 32 and of 10 elements
    for stage, per_slot, per_weight in (("optimizer", 0.5, 1.0), ("parameters", 0.5, 0.5)):
        for found in outcomes[stage][1]:
            held_slots, held_weights = found["held"]
            assert held_slots == slots - (1 - per_slot) * 3 * divisible
            assert held_weights == weights - (1 - per_weight) * divisible


@pytest.mark.parametrize("stage", ["optimizer", "parameters"])
def test_files_are_whole_and_open_anywhere(outcomes: Any, stage: str) -> None:
    import keras

    paths = [str(outcomes[each][0] / "checkpoint-1") for each in (None, stage)]
    for name in ("epoch1.keras", "epoch2.keras", "end.keras"):
        models = [keras.models.load_model(outcomes[each][0] / name) for each in (None, stage)]
        for plain, sharded in zip(models[0].variables, models[1].variables, strict=True):
            np.testing.assert_array_equal(plain.numpy(), sharded.numpy())
        for plain, sharded in zip(models[0].optimizer.variables, models[1].optimizer.variables, strict=True):
            np.testing.assert_array_equal(plain.numpy(), sharded.numpy())
    plain, sharded = (load(path).arrays for path in paths)
    assert plain.keys() == sharded.keys()
    for name, array in plain.items():
        np.testing.assert_array_equal(sharded[name], array, err_msg=name)


def backs_up(stage: str | None, folder: str, epochs: int) -> tuple[list[float], list[Any]]:
    from jax.experimental.multihost_utils import process_allgather

    import stratagem

    _, model = make(stage, average=False)  # at its end `fit` puts averages in the place of weights
    losses = fit(model, epochs, stratagem.callbacks.BackupAndRestore(folder, save_freq=2, delete_checkpoint=False))
    if stage is None:
        return losses, model.get_weights()
    model.save_weights(f"{folder}.weights.h5")
    model.load_weights(f"{folder}.weights.h5")
    values = [variable.value for variable in model.weights]
    return losses, [
        np.asarray(each if each.is_fully_addressable else process_allgather(each, tiled=True)) for each in values
    ]


@pytest.mark.parametrize(("first", "then", "workers"), [("parameters", None, 1), (None, "parameters", 2)])
def test_a_backup_opens_with_other_workers_and_other_shards(
    tmp_path: Path, first: str | None, then: str | None, workers: int
) -> None:
    [whole] = run_workers(backs_up, 1, args=[None, str(tmp_path / "whole"), 3], timeout_seconds=120)
    run_workers(backs_up, 2, args=[first, str(tmp_path / "backup"), 2], timeout_seconds=120)
    results = run_workers(backs_up, workers, args=[then, str(tmp_path / "backup"), 3], timeout_seconds=120)
    losses, weights = whole.value
    for result in results:
        np.testing.assert_allclose(result.value[0][-1], losses[-1], rtol=1e-5)
        for found, expected in zip(result.value[1], weights, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def differs(task: int) -> None:
    import stratagem

    stratagem.MultiWorkerMirroredStrategy(shard="optimizer" if task else "parameters")


def own_stage() -> str:
    import json
    import os

    try:
        differs(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
    except PeerError as error:
        return str(error)
    return "no error"


def test_workers_that_disagree_are_told_before_anything_is_trained() -> None:
    for result in run_workers(own_stage, 2, timeout_seconds=60):
        assert "options of the strategy" in result.value
        assert "optimizer" in result.value
        assert "parameters" in result.value


def saves_between_steps(folder: str) -> str:
    import keras

    _, model = make("optimizer")
    try:
        fit(model, 1, keras.callbacks.ModelCheckpoint(f"{folder}/model.keras", save_freq=2))
    except UsageError as error:
        return str(error)
    return "no error"


def test_saving_between_steps_says_what_to_write(tmp_path: Path) -> None:
    results = run_workers(saves_between_steps, 2, args=[str(tmp_path)], timeout_seconds=60, check=False)
    assert "are kept in shards" in str(results[0].value or results[0].output)


def trains_in(megabytes: int, stage: str | None) -> list[float]:
    """Train 25 million weights with so much memory beyond what JAX and Keras take."""
    import resource

    import jax
    import keras

    import stratagem

    # Where memory is limited, the heap takes no addresses ahead; they would count as taken here.
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 50, resource.RLIM_INFINITY))
    keras.utils.set_random_seed(1)
    strategy = stratagem.MultiWorkerMirroredStrategy(shard=stage)
    jax.jit(lambda x: x + 1)(np.ones(3))
    status = Path("/proc/self/status").read_text().splitlines()
    taken = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (taken * 1024 + megabytes * 10**6,) * 2)
    with strategy.scope():
        dense = [keras.layers.Dense(1024, activation="relu") for _ in range(24)]
        model = keras.Sequential([keras.Input((1024,)), *dense, keras.layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rng = np.random.default_rng(0)
    x, y = rng.random((64, 1024), np.float32), rng.integers(0, 10, 64)
    return model.fit(x, y, batch_size=32, epochs=2, verbose=0).history["loss"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's limits of memory")
def test_a_model_that_does_not_fit_trains_in_shards() -> None:
    results = run_workers(trains_in, 2, args=[900, "parameters"], timeout_seconds=120)
    assert results[0].value == results[1].value
    assert np.isfinite(results[0].value).all()
    whole = run_workers(trains_in, 2, args=[900, None], timeout_seconds=120, check=False)
    said = [result.output for result in whole if "ut of memory" in result.output]
    assert len(said) == 2  # the one that failed, and the other, which is told
    assert all('shard="parameters"' in text for text in said)
