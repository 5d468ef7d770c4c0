"""`train_and_evaluate` as several processes: the example, as a person starts it, and what workers agree on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "estimator.py"


def test_an_evaluator_follows_two_workers_and_ends(tmp_path: Path) -> None:
    arguments = ["--max-steps", "8", "--learning-rate", "0.05", "--model-dir", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--evaluator"]
        + [str(part) for part in (TESTS / "seeded.py", 1, EXAMPLE, *arguments)],
        env={**os.environ, "STRATAGEM_DATA": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    pattern = r"\[evaluator 0\] .*Saving dict for global step (\d+): global_step = \d+, loss = (\S+)"
    assert [step for step, _ in re.findall(pattern, done.stdout)][-1] == "8"
    assert "[worker 0] stratagem: Saving checkpoints for 8 into" in done.stdout
    assert re.search(r"\[worker \d\] .*(Starting evaluation|Saving dict)", done.stdout) is None
    assert re.search(
        r"\[evaluator 0\] \({'loss': np.float32\(\S+\), 'global_step': np.int64\(8\)}, \[\]\)", done.stdout
    )
    assert (tmp_path / "eval").is_dir()


def test_chief_workers_server_and_evaluator_of_one_program(tmp_path: Path) -> None:
    program = [str(TESTS / "multiprocess" / "estimates_with_servers.py"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--ps", "1", "--evaluator", *program],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\[chief 0\] .*Saving checkpoints for 60 into", done.stdout)
    assert re.search(r"\[chief 0\] result: \(None, \[\]\)", done.stdout)
    parts = set(re.findall(r"\[(\w+ \d)\] reads part (\d) of 2", done.stdout))
    assert parts  # a worker that starts late may find nothing left to do
    assert parts <= {("worker 0", "0"), ("worker 1", "1")}
    assert re.search(r"\[(chief|worker|ps) \d\] .*(Starting evaluation|Saving dict)", done.stdout) is None
    assert re.search(r"\[evaluator 0\] result: \({'loss': .*, 'global_step': np.int64\(60\)}, \[\]\)", done.stdout)
    estimator = stratagem.estimator.Estimator(lambda features: None, tmp_path)
    assert estimator.get_variable_value("global_step") == estimator.get_variable_value("adam/iteration") == 60


X = np.arange(24, dtype="float32").reshape(12, 2) / 24


def train_twice(strategy: Any, folder: str) -> list[Any]:
    """Train in two sessions of two steps; return what the evaluation after each found."""
    import keras

    import stratagem
    from stratagem.estimator import Estimator, EstimatorSpec, EvalSpec, RunConfig, TrainSpec, train_and_evaluate

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        loss = keras.ops.mean((keras.layers.Dense(1)(features) - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=keras.optimizers.Adam(0.1).minimize(loss))

    def input_fn() -> Any:  # no input_context: its four batches are dealt out to the workers
        return stratagem.data.Dataset.from_tensor_slices((X, X.sum(1, keepdims=True))).batch(3)

    config = RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=5, save_checkpoints_secs=1)
    found = []
    for _ in range(2):
        estimator = Estimator(model_fn, folder, config)
        result = train_and_evaluate(estimator, TrainSpec(input_fn, max_steps=6), EvalSpec(input_fn, steps=None))
        if strategy.worker_count > 1:
            assert result == (None, []), "an evaluator evaluates"
        found.append(estimator.evaluate(input_fn))
    return found


def on_a_worker(folder: str) -> list[Any]:
    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    return train_twice(strategy, f"{folder}/{strategy.worker_index}")  # only the chief's folder counts


def test_two_workers_are_two_replicas_and_resume(tmp_path: Path) -> None:
    chief, other = (result.value for result in run_workers(on_a_worker, 2, args=[str(tmp_path)]))
    expected = train_twice(stratagem.MirroredStrategy(["cpu:0", "cpu:1"]), str(tmp_path / "one"))
    assert [int(metrics["global_step"]) for metrics in expected] == [2, 4]
    assert chief == other
    for found, wanted in zip(chief, expected, strict=True):
        assert found["global_step"] == wanted["global_step"]
        np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-4)


KILLED = """
import os, signal
import keras, numpy as np, stratagem
from stratagem.estimator import Estimator, EstimatorSpec, RunConfig, SessionRunHook

strategy = stratagem.MultiWorkerMirroredStrategy()

def model_fn(features, labels, mode):
    w = keras.Variable(0.0, name="w")
    return EstimatorSpec(mode, loss=keras.ops.mean(features) - w, train_op=keras.optimizers.SGD(1.0).minimize(-w.value))

def input_fn():
    return stratagem.data.Dataset.from_tensor_slices((np.ones(4, "float32"), np.ones(4, "float32"))).repeat().batch(1)

class Dies(SessionRunHook):
    def after_run(self, run_context, run_values):
        first_life = os.environ["STRATAGEM_GENERATION"] == "1"
        if first_life and strategy.worker_index == 1 and run_context.session.global_step == 7:
            os.kill(os.getpid(), signal.SIGKILL)

config = RunConfig(train_distribute=strategy, save_summary_steps=None, save_checkpoints_steps=3, log_step_count_steps=1)
estimator = Estimator(model_fn, "trained", config).train(input_fn, hooks=[Dies()], max_steps=10)
print("ends with", estimator.get_variable_value("global_step"), estimator.get_variable_value("w"))
"""


def test_a_killed_worker_costs_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    """`w` counts the steps that its value has seen: none is lost, none is done twice."""
    (tmp_path / "program.py").write_text(KILLED)
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--max-restarts", "1", "program.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"Restoring parameters from trained/(\S+)", done.stdout) == ["model.ckpt-6"]
    assert re.findall(r"\[worker 0\] .*loss = (\S+), step = (\d+)", done.stdout)[-4:] == [
        (f"{1.0 - step}", str(step)) for step in (6, 7, 8, 9)
    ]
    assert set(re.findall(r"ends with (\S+) (\S+)", done.stdout)) == {("10", "10.0")}
