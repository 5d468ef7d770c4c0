"""`Inspect` on two workers: a bit that flips on one of them, NaN that comes from its rows, one that has none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flipped import flip_bit
from tests.fresh import run_python

from stratagem.core.errors import PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

ROWS = 8


def _worker() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def _model(momentum: float = 0.0, shard: str | None = None) -> Any:
    import keras

    import stratagem

    keras.utils.set_random_seed(1)
    with stratagem.MultiWorkerMirroredStrategy(shard=shard).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(keras.ops.log, name="planted")])
        model.add(keras.layers.Dense(1, name="dense"))
        model.compile(keras.optimizers.SGD(1e-3, momentum=momentum), "mse")
    return model


def _rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (count, 3)).astype("float32")
    return x, x[:, :1].copy()


def flips(group: str, place: int, bit: int, step: int) -> str:
    import keras

    from stratagem.callbacks import Inspect

    model = _model(momentum=0.5)

    def flip(batch: int, logs: Any) -> None:
        if batch + 1 == step and _worker() == 1:
            flip_bit(model._jax_state[group][place].addressable_data(0), bit)

    x, y = _rows(60 * ROWS)
    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=flip), Inspect(every=20)]
    try:
        model.fit(x, y, batch_size=ROWS, verbose=0, callbacks=callbacks)
    except PeerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("group", "place", "bit", "name"),
    [
        ("optimizer_variables", 2, 0, "dense_kernel_momentum"),
        ("trainable_variables", 0, 31, "dense/kernel"),
        ("trainable_variables", 1, 0, "dense/bias"),
    ],
)
def test_a_bit_that_flips_on_one_worker_is_found(group: str, place: int, bit: int, name: str) -> None:
    for result in run_workers(flips, 2, args=[group, place, bit, 33]):
        assert "hold different values between step 20 and 40:" in result.value
        assert name in result.value
        assert "on worker 0" in result.value
        assert "on worker 1" in result.value


def nan_on_worker_1(folder: str, shard: str | None = None) -> tuple[str, int, bool]:
    from stratagem.callbacks import Inspect

    model = _model(momentum=0.5, shard=shard)
    x, y = _rows(20 * ROWS + 2)
    x[12 * ROWS + 6] = -1.0  # the last four rows of a batch are those of worker 1
    try:
        model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0, callbacks=[Inspect(every=5, folder=folder)])
    except ValueError as error:
        finite = all(np.isfinite(weight).all() for weight in model.get_weights())
        return str(error), int(model.optimizer.iterations), finite
    return "", 0, False


@pytest.mark.parametrize("shard", [None, "parameters"])
def test_nan_from_a_row_of_one_worker_is_found_by_both(tmp_path: Path, shard: str | None) -> None:
    for result in run_workers(nan_on_worker_1, 2, args=[str(tmp_path), shard]):
        said, steps, finite = result.value
        assert said.startswith("Step 13 computed NaN or infinity: `log` was the first operation, in float32[4, 3].")
        assert "It is in layer 'planted' on replica 1 of 2 (worker 1)." in said
        assert "Row 6 of the 8 of its global batch led to it." in said
        assert (steps, finite) == (12, True)
    found = json.loads((tmp_path / "step-13.json").read_text())
    assert (found["rows"], found["worker"], found["shares"]) == ([6], 1, [4, 4])
    steps = [json.loads(line)["step"] for line in (tmp_path / "digests.jsonl").read_text().splitlines()]
    assert steps == [5, 10]


def nan_and_checkpoints(folder: str, who: str) -> str:
    import keras

    from stratagem.callbacks import Inspect

    model = _model()
    x, y = _rows(20 * ROWS)
    x[6 * ROWS + 6] = -1.0
    path = f"{folder}/{{batch}}.weights.h5"
    callbacks: list[Any] = [Inspect(every=10)]
    if who == "all" or _worker() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=3))
    try:
        model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0, callbacks=callbacks)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("who", "saved"), [("all", [3, 6]), ("the chief", [3, 6, 9])])
def test_a_checkpoint_within_an_epoch_saves_no_nan(tmp_path: Path, who: str, saved: list[int]) -> None:
    """All workers look before it saves, if all were given it. The next look would be after step 10."""
    for result in run_workers(nan_and_checkpoints, 2, args=[str(tmp_path), who]):
        assert result.value.startswith("Step 7 computed NaN or infinity: `log` was the first operation")
    assert sorted(int(file.name.partition(".")[0]) for file in tmp_path.iterdir()) == saved


TRAINS = """
import sys

import numpy as np
import stratagem
from stratagem import keras

keras.utils.set_random_seed(1)
with stratagem.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
x = np.random.default_rng(0).uniform(0.5, 1.5, (48, 3)).astype("float32")
backup = stratagem.callbacks.BackupAndRestore(sys.argv[1], save_freq=2, delete_checkpoint=False)


def end(batch, logs):
    if batch == 4:
        sys.exit(3)


ends = keras.callbacks.LambdaCallback(on_train_batch_begin=end)
model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[ends, backup] if sys.argv[2:] else [backup])
"""


def test_replay_on_two_workers(tmp_path: Path) -> None:
    script, backup = tmp_path / "train.py", tmp_path / "backup"
    script.write_text(TRAINS)
    run_workers(script, 2, args=[str(backup), "ends"], check=False)
    command = ["-m", "stratagem", "replay", "--backup", str(backup), "--workers", "2"]
    done = run_python(*command, "--step", "4", "--times", "3", str(script), "elsewhere", home=tmp_path)
    assert "3 runs of step 4 computed the same bits: " in done.stdout
    assert done.returncode == 0, done.stderr
    wrong = run_python(*command, "--step", "1", str(script), "elsewhere", home=tmp_path)
    assert wrong.returncode == 2
    assert "its backups were made after step 2 and 4" in wrong.stdout + wrong.stderr
    assert not (tmp_path / "elsewhere").exists()
