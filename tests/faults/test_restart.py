"""A worker is killed under `stratagem run --max-restarts`: the next generation goes on to the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    if strategy.is_chief and number == 5 and os.environ["STRATAGEM_GENERATION"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
print("total", float(total))
"""


def test_a_run_whose_chief_is_killed_comes_to_its_end(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    options = ["--workers", "2", "--max-restarts", "1", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(script), str(tmp_path / "steps")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for worker in (0, 1):
        assert f"[worker {worker}] from step 1\n" in done.stdout
        assert f"[worker {worker}] from step 6\n" in done.stdout
        assert f"[worker {worker}] total 12.0\n" in done.stdout
    assert "\ngeneration 1, 2 workers: worker 0 was ended by SIGKILL after " in done.stderr
    assert " s, after step 5 (" in done.stderr
    assert "\ngeneration 2, 2 workers: ended well after " in done.stderr
