"""Two workers save models as one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import CheckpointError, UsageError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def everybody_saves(folder: str) -> dict[str, Any]:
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    writes: list[str] = []
    layer = model.layers[0]
    write = layer.save_own_variables
    current = [""]
    layer.save_own_variables = lambda store: (writes.append(current[0]), write(store))[1]

    def save(name: str) -> None:
        current[0] = name
        (model.save_weights if name.endswith(".weights.h5") else model.save)(f"{folder}/{name}")

    class Saves(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            save("in_fit.keras")

    x = np.ones((4, 3), "float32")
    current[0] = "best.keras"
    callbacks = [keras.callbacks.ModelCheckpoint(f"{folder}/best.keras"), Saves()]
    model.fit(x, x[:, :2], batch_size=4, verbose=0, callbacks=callbacks)

    loaded = []
    for name in ("model.keras", "model.weights.h5"):
        save(name)
        if name == "model.keras":
            loaded.append(keras.models.load_model(f"{folder}/{name}").get_weights()[0].tolist())
        else:
            model.load_weights(f"{folder}/{name}")
            loaded.append(model.get_weights()[0].tolist())
    with strategy.scope():
        never_compiled = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    never_compiled.save(f"{folder}/never_compiled.keras")
    assert keras.models.load_model(f"{folder}/never_compiled.keras").get_weights()[0].shape == (3, 2)
    save("chief.keras" if strategy.is_chief else "other.keras")  # as in the tutorials
    if strategy.is_chief:
        save("chief_alone.keras")
    save("last.keras")

    class OwnBackup(keras.callbacks.BackupAndRestore):
        pass

    errors = []
    try:
        model.fit(x, x[:, :2], verbose=0, callbacks=[OwnBackup(f"{folder}/backup")])
    except UsageError as error:
        errors.append(str(error))
    try:
        model.save(f"{folder}/model.txt")
    except (ValueError, CheckpointError) as error:
        errors.append(f"{type(error).__name__}: {error}")
    return {"writes": writes, "loaded": loaded, "weights": model.get_weights()[0].tolist(), "errors": errors}


@pytest.mark.quick
def test_all_workers_save_and_the_chief_writes(tmp_path: Path) -> None:
    chief, other = (result.value for result in run_workers(everybody_saves, 2, args=[str(tmp_path)]))
    names = ["best.keras", "in_fit.keras", "model.keras", "model.weights.h5", "chief.keras"]
    assert chief["writes"] == [*names, "chief_alone.keras", "last.keras"]
    # It cannot know that the chief's file before was a matter of the chief alone, and writes the last one too.
    assert other["writes"] == ["in_fit.keras", "other.keras", "last.keras"]
    assert sorted(os.listdir(tmp_path)) == sorted([*chief["writes"], "never_compiled.keras", "other.keras"])
    assert chief["loaded"] == other["loaded"] == [chief["weights"]] * 2
    assert "keras.callbacks.BackupAndRestore as the base of OwnBackup" in chief["errors"][0]
    assert "Use stratagem.callbacks.BackupAndRestore" in chief["errors"][0]
    assert chief["errors"][0] == other["errors"][0]
    assert chief["errors"][1].startswith("ValueError")


def backs_up_as_in_keras(folder: str, epochs: list[int]) -> list[dict[str, Any]]:
    """Train one after another with Keras's callback, as programs that are started again."""
    import keras
    import numpy as np

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    x = np.arange(24, dtype="float32").reshape(8, 3) / 24
    found = []
    for count in epochs:
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            model.compile(keras.optimizers.Adam(0.1), "mse")
        backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
        history = model.fit(x, x[:, :2], batch_size=4, epochs=count, verbose=0, callbacks=[backup]).history
        found.append({"losses": history["loss"], "weights": model.get_weights()[0].tolist()})
    return found


def test_the_backup_of_keras_is_one_of_all_workers(tmp_path: Path) -> None:
    """Each of two workers would write and read its files. A resumed run ends as one that did not stop."""
    resumed = [each.value for each in run_workers(backs_up_as_in_keras, 2, args=[str(tmp_path / "a"), [2, 4]])]
    whole = [each.value for each in run_workers(backs_up_as_in_keras, 2, args=[str(tmp_path / "b"), [4]])]
    assert resumed[0] == resumed[1]
    assert whole[0] == whole[1]
    assert resumed[0][1]["weights"] == whole[0][0]["weights"]
    assert resumed[0][1]["losses"] == whole[0][0]["losses"]
    assert not (tmp_path / "a" / "latest.weights.h5").exists()


def evaluates_in_a_writer(folder: str) -> dict[str, Any]:
    import keras

    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    x = np.arange(24, dtype="float32").reshape(8, 3) / 24
    losses = []

    class Saves(keras.callbacks.ModelCheckpoint):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_end(epoch, logs)
            losses.append(self.model.evaluate(x, x[:, :2], verbose=0))

    model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=[Saves(f"{folder}/sub.keras")])
    return {"losses": losses, "last": model.evaluate(x, x[:, :2], verbose=0)}


def test_a_writer_of_a_program_may_do_what_all_workers_do_together(tmp_path: Path) -> None:
    first, second = (result.value for result in run_workers(evaluates_in_a_writer, 2, args=[str(tmp_path)]))
    assert first == second
    assert len(first["losses"]) == 2
    assert first["losses"][-1] == first["last"]
    assert (tmp_path / "sub.keras").is_file()
