"""Workers whose replicas have several devices: the numbers of one device, files, resuming on other workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

ROWS, BATCH = 66, 16


def make(parallel: int | None, shard: str | None = None, *, average: bool = True) -> tuple[Any, Any]:
    import keras

    import stratagem

    keras.utils.set_random_seed(1)
    size = 64 if parallel or shard else None
    strategy = stratagem.MultiWorkerMirroredStrategy(model_parallel=parallel, shard=shard, shard_min_size=size)
    with strategy.scope():
        layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(32), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((16,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, use_ema=average), loss)
    return strategy, model


def fit(model: Any, epochs: int, *callbacks: Any) -> list[float]:
    rng = np.random.RandomState(0)
    x, y = rng.rand(ROWS, 16).astype("float32"), rng.randint(0, 10, ROWS)
    return model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[*callbacks]).history["loss"]


def trains(parallel: int | None, shard: str | None, folder: str) -> dict[str, Any]:
    import keras

    import stratagem

    strategy, model = make(parallel, shard)
    read: list[float] = []
    reads = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: read.append(model.get_weights()[0].sum()))
    losses = fit(model, 2, reads)
    model.save(f"{folder}/end.keras")
    path = stratagem.train.Checkpoint(model=model).save(f"{folder}/checkpoint")
    specs = [tuple(variable.value.sharding.spec) for variable in model.weights]
    return {"losses": losses, "replicas": strategy.num_replicas_in_sync, "specs": specs, "path": path, "read": read}


@pytest.mark.parametrize("shard", [None, "parameters"])
def test_two_workers_with_two_devices_each_train_as_one_device_does(tmp_path: Path, shard: str | None) -> None:
    import keras

    alone = run_workers(trains, 1, args=[None, None, str(tmp_path / "alone")], devices_per_worker=1)[0].value
    folder = tmp_path / "two"
    results = run_workers(trains, 2, args=[2, shard, str(folder)], devices_per_worker=2, timeout_seconds=120)
    first, second = (result.value for result in results)
    assert first["replicas"] == 2
    assert first["losses"] == second["losses"]
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(first["read"], alone["read"], rtol=1e-5)
    assert first["specs"][0] == ("replica" if shard else None, "model")
    own, other = (keras.models.load_model(tmp_path / name / "end.keras") for name in ("two", "alone"))
    for one, wanted in zip(own.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


def goes_on(parallel: int, epochs: int, folder: str) -> list[float]:
    import stratagem

    _, model = make(parallel, "optimizer", average=False)  # averaged weights take the weights' place when training ends
    return fit(model, epochs, stratagem.callbacks.BackupAndRestore(folder, delete_checkpoint=False))


def test_a_backup_goes_on_with_other_groups_of_devices(tmp_path: Path) -> None:
    run_workers(goes_on, 2, args=[2, 1, str(tmp_path / "backup")], devices_per_worker=4, timeout_seconds=120)
    found = run_workers(goes_on, 1, args=[4, 3, str(tmp_path / "backup")], devices_per_worker=4)[0]
    assert "Going on at epoch 2" in found.output
    whole = run_workers(goes_on, 1, args=[2, 3, str(tmp_path / "other")], devices_per_worker=2)[0].value
    np.testing.assert_allclose(found.value, whole, rtol=1e-5)


def own_groups(arguments: list[dict[str, Any]]) -> str:
    import json
    import os

    import stratagem

    try:
        task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        stratagem.MultiWorkerMirroredStrategy(**arguments[task])
    except PeerError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    "arguments",
    [
        ({"model_parallel": 2}, {"model_parallel": 4}),
        ({"model_parallel": 2}, {"model_parallel": 2, "layout_map": {"up/kernel": (None, "model")}}),
    ],
)
def test_workers_that_disagree_on_groups_or_layouts_are_told(arguments: tuple[dict[str, Any], ...]) -> None:
    name = [*arguments[1]][-1]
    for result in run_workers(own_groups, 2, args=[[*arguments]], devices_per_worker=4, timeout_seconds=60):
        assert "options of the strategy" in result.value
        assert name in result.value
