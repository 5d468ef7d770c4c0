"""TensorFlow programs of several tasks, run with one line changed: real processes, started by `stratagem run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from tests import translated
from tests.programs.conftest import PROGRAMS

pytestmark = pytest.mark.multiprocess


def launch(name: str, folder: Path, *options: str, **variables: str) -> str:
    """Run a program as the tasks of a cluster on this machine; return what they wrote."""
    program = translated.lay(PROGRAMS / name, folder)
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, translated.__file__, "1", str(program)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_worker_dies_and_the_job_goes_on(tmp_path: Path) -> None:
    output = launch("multi_worker_backup.py", tmp_path, "--workers", "2", "--max-restarts", "1")

    assert "[worker 1] dies" in output
    assert "Going on at epoch 3, from a backup" in output
    ends = [re.findall(rf"\[worker {i}\] (?:losses|steps|weights) (.*)", output) for i in (0, 1)]
    assert ends[0] == ends[1]
    losses, steps, weights = ends[0]
    assert steps == "35"
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        f"weights.{epoch:02d}.h5" for epoch in range(1, 6)
    ]
    assert not (tmp_path / "backup").exists() or not list((tmp_path / "backup").iterdir())

    # The numbers of one device that nothing happened to.
    x = np.random.default_rng(0).normal(size=(100, 6)).astype("float32")
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    history = model.fit(x, x.sum(axis=1, keepdims=True), batch_size=16, epochs=5, shuffle=False, verbose=0).history
    np.testing.assert_allclose([float(loss) for loss in losses.split()], history["loss"], rtol=1e-4)
    expected = sum(np.abs(weight).sum() for weight in model.get_weights())
    assert float(weights) == pytest.approx(expected, rel=1e-4)


def test_a_custom_loop_on_two_workers_started_twice(tmp_path: Path) -> None:
    pattern = r"\[worker (\d)\] Epoch: (\d), accuracy: (\S+), train_loss: (\S+)\.$"
    first = launch("multi_worker_custom_loop.py", tmp_path, "--workers", "2", EPOCHS="2")
    second = launch("multi_worker_custom_loop.py", tmp_path, "--workers", "2", EPOCHS="3")

    assert "restored" not in first
    assert re.findall(r"\[worker \d\] restored at epoch (\d) step (\d)", second) == [("2", "0")] * 2
    lines = re.findall(pattern, first + second, re.MULTILINE)
    by_worker = [[line[1:] for line in lines if line[0] == worker] for worker in "01"]
    assert by_worker[0] == by_worker[1]
    assert [epoch for epoch, _, _ in by_worker[0]] == ["0", "1", "2"]
    losses = [float(loss) for _, _, loss in by_worker[0]]
    assert 2.4 > losses[0] > losses[1] > losses[2]
    assert losses[2] < 1.2
    assert float(by_worker[0][2][1]) > 0.65
    assert sorted(path.name for path in (tmp_path / "ckpt").glob("ckpt-*")) == ["ckpt-3.index", "ckpt-3.safetensors"]


def test_parameter_servers(tmp_path: Path) -> None:
    output = launch("parameter_server.py", tmp_path, "--workers", "2", "--ps", "2")

    (shown,) = re.findall(r"\[chief 0\] fit (\[.*\])", output)
    losses = [float(loss) for loss in re.findall(r"\d+\.\d+", shown)]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    accuracies = re.findall(r"\[chief 0\] Finished epoch (\d), accuracy is (\S+)\.$", output, re.MULTILINE)
    assert [int(epoch) for epoch, _ in accuracies] == list(range(6))
    assert float(accuracies[-1][1]) > 0.95  # "avenger" decides, and the embedding finds it
    (final,) = re.findall(r"Final loss is (\S+)", output)
    assert float(final) < 0.2
    (evaluated,) = re.findall(r"Evaluation accuracy: (\S+)", output)
    assert float(evaluated) > 0.95
    assert (tmp_path / "my_working_dir" / "log").is_dir()


def test_an_evaluator_beside_training(tmp_path: Path) -> None:
    output = launch("evaluation_beside_training.py", tmp_path, "--workers", "1", "--evaluator")

    (trained,) = re.findall(r"\[(?:worker|chief) 0\] trained, loss (\S+)", output)
    (evaluated,) = re.findall(r"\[evaluator 0\] evaluated, loss (\S+)", output)
    assert float(evaluated) == pytest.approx(float(trained), rel=1e-5)
    assert float(trained) < 0.65
    assert "checkpoints ['ckpt-1', 'ckpt-2', 'ckpt-3', 'ckpt-4']" in output
    assert list((tmp_path / "evaluation").rglob("events*"))
