"""Checkpoints, backups and parameter servers of programs that train on a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from tests.gpu.conftest import kind

import stratagem
from stratagem import MirroredStrategy, OneDeviceStrategy

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys
import numpy as np
import stratagem
import stratagem.callbacks
from stratagem import keras

folder, kill_at = sys.argv[1], int(sys.argv[2])
keras.utils.set_random_seed(1)
strategy = stratagem.MirroredStrategy()
assert strategy.mesh.devices[0].platform == sys.argv[3], strategy.mesh.devices
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.2),
                              keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
x = np.random.default_rng(0).standard_normal((64, 4)).astype("float32")


class Kill(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == kill_at:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)


backup = stratagem.callbacks.BackupAndRestore(folder + "/backup", save_freq=3)
model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=3, verbose=0, callbacks=[backup, Kill()])
np.savez(folder + "/weights.npz", *model.get_weights())
"""


def run(folder: Path, kill_at: int) -> int:
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "train.py"), str(folder), str(kill_at), kind()]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(command, env=environment, timeout=150, check=False).returncode


def test_killed_and_started_again_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    once.mkdir()
    twice.mkdir()
    assert run(once, 0) == 0
    assert run(twice, 11) == -signal.SIGKILL
    assert run(twice, 0) == 0
    with np.load(once / "weights.npz") as expected, np.load(twice / "weights.npz") as found:
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_a_checkpoint_of_a_gpu_is_read_on_the_cpu_and_back(one: str, tmp_path: Path) -> None:
    def made(name: str) -> tuple[keras.Model, stratagem.train.Checkpoint]:
        with OneDeviceStrategy(name).scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            model.compile("adam", "mse")
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
        return model, stratagem.train.Checkpoint(model=model, optimizer=model.optimizer)

    (first, of_first), (second, of_second) = made(one), made("cpu:0")
    of_second.restore(of_first.save(str(tmp_path / "ckpt"))).assert_consumed()
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    second.fit(np.ones((4, 3)), np.zeros((4, 2)), verbose=0)
    of_first.restore(of_second.save(str(tmp_path / "back")))
    np.testing.assert_array_equal(first.get_weights()[0], second.get_weights()[0])


def test_a_saved_model_is_read_under_any_strategy(names: list[str], tmp_path: Path) -> None:
    with MirroredStrategy(names).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    with OneDeviceStrategy("cpu:0").scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.predict(np.ones((2, 3)), verbose=0), model.predict(np.ones((2, 3)), verbose=0), 1e-5
    )


def test_workers_of_parameter_servers_compute_on_the_gpu(tmp_path: Path) -> None:
    program = """
        import numpy as np
        import stratagem
        from stratagem import keras

        strategy = stratagem.ParameterServerStrategy()
        with strategy.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.05), "mse")
        x = np.random.default_rng(0).standard_normal((256, 3)).astype("float32")
        history = model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=8, steps_per_epoch=16, verbose=0)
        losses = history.history["loss"]
        assert losses[-1] < 0.1 * losses[0], losses
        print("trained")
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(program))
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "1", "--ps", "1", "train.py"]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained" in done.stdout
