"""A worker is killed under `stratagem run --max-restarts`: the next generation goes on to the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.test_group_end import JAX_ENDS_IT

from stratagem.launch.machine import free_ports

pytestmark = pytest.mark.multiprocess

PROGRAM = """
import os, signal, sys
from pathlib import Path
import jax.numpy as jnp
import stratagem

strategy = stratagem.MultiWorkerMirroredStrategy()
file = Path(sys.argv[1])
done = int(file.read_text()) if file.exists() else 0
total = jnp.float32(done)


def step(total):
    context = stratagem.get_replica_context()
    return total + context.all_reduce("sum", context.replica_id_in_sync_group.astype("float32"))


print("from step", done + 1, flush=True)
for number in range(done + 1, 13):
    total = strategy.run(step, args=(total,)).values[0]
    if strategy.is_chief:
        file.with_suffix(".new").write_text(str(number))
        file.with_suffix(".new").rename(file)
    if strategy.is_chief and number == 5 and done == 0:
        os.kill(os.getpid() if sys.argv[2] == "worker" else os.getppid(), signal.SIGKILL)
        signal.pause()
print("total", float(total))
"""


def command(folder: Path, killed: str, *options: str) -> list[str]:
    """Return the command of a launcher. After step 5 the chief kills itself ("worker"), or its launcher."""
    script = folder / "train.py"
    script.write_text(PROGRAM)
    launcher = [sys.executable, "-m", "stratagem", "run", "--max-restarts", "1", *options]
    return [*launcher, str(script), str(folder / "steps"), killed]


ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu"}


def test_a_run_whose_chief_is_killed_comes_to_its_end(tmp_path: Path) -> None:
    options = ["--workers", "2", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        command(tmp_path, "worker", *options), capture_output=True, text=True, check=False, env=ENVIRONMENT
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for worker in (0, 1):
        assert f"[worker {worker}] from step 1\n" in done.stdout
        assert f"[worker {worker}] from step 6\n" in done.stdout
        assert f"[worker {worker}] total 12.0\n" in done.stdout
    assert "\ngeneration 1, 2 workers: worker 0 was ended by SIGKILL after " in done.stderr
    assert " s, after step 5 (" in done.stderr
    assert "\ngeneration 2, 2 workers: ended well after " in done.stderr


@JAX_ENDS_IT
@pytest.mark.parametrize("killed", ["worker", "launcher"])
def test_launchers_of_two_machines_go_on_together(killed: str, tmp_path: Path) -> None:
    """Also where the machine of the coordinator fails, and its launcher is started again by whatever starts it."""
    (port,) = free_ports(1)
    nodes = ["--nodes", "2", "--coordinator", f"127.0.0.1:{port}", "--node-rank"]
    first, second = (command(tmp_path, killed, *nodes, rank) for rank in "01")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen(first, **pipes) as chief, subprocess.Popen(second, **pipes) as other:
        try:
            said = chief.communicate()[0]
            if killed == "launcher":
                assert chief.returncode == -signal.SIGKILL
                again = subprocess.run(first, capture_output=True, text=True, check=False, env=ENVIRONMENT)
                assert again.returncode == 0, again.stderr
                assert "[worker 0] total 12.0\n" in again.stdout
            else:
                assert chief.returncode == 0, said
                assert "[worker 0] total 12.0\n" in said
                assert "\ngeneration 1, 1 worker: worker 0 was ended by SIGKILL after " in said
            told = other.communicate()[0]
        finally:
            chief.kill()
            other.kill()
    assert other.returncode == 0, told
    assert "[worker 1] from step 6\n[worker 1] total 12.0\n" in told
    assert "\ngeneration 1, 1 worker: worker 1 lost a peer" in told, told
    assert "\ngeneration 2, 1 worker: ended well after " in told


BROKEN = """
import json, os, sys

if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1 and os.path.exists("broken"):
    sys.exit("broken disk")
import keras
import numpy as np
import stratagem

strategy = stratagem.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


def tell(epoch, logs):
    print(f"epoch {epoch}, {strategy.worker_count} workers: {logs['loss']:.5f}", flush=True)
    if epoch == 2 and strategy.worker_count == 1:
        os.remove("broken")
        os._exit(43)


callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=tell), stratagem.callbacks.BackupAndRestore("backup")]
model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=5, verbose=0, callbacks=callbacks)
"""


def test_goes_on_with_fewer_workers_and_grows_again(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    (tmp_path / "train.py").write_text(BROKEN)
    options = ["--workers", "2", "--max-restarts", "5", "--min-workers", "1", "--backoff", "0.1"]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, "train.py"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    workers = [int(number) for number in re.findall(r"^generation \d+, (\d) worker", done.stderr, re.MULTILINE)]
    assert workers == [2, 2, 1, 2]
    told = re.findall(r"\[worker 0\] epoch (\d), (\d) workers: (\S+)", done.stdout)
    alone, together = (
        {int(epoch): float(loss) for epoch, workers, loss in told if workers == number} for number in "12"
    )
    assert list(alone) == [0, 1, 2]
    assert max(together) == 4
    assert min(together) in (1, 2, 3)  # behind the newest backup that was whole
    # The global batch is fixed, so each epoch is the same on any number of workers.
    common = alone.keys() & together.keys()
    assert [together[epoch] for epoch in common] == pytest.approx([alone[epoch] for epoch in common], rel=1e-4)
    assert together[4] < together[3] < alone[2]
