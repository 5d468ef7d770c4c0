"""Chief, parameter server and worker are killed under `stratagem run --max-restarts`: training goes on to its end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.faults.trains_with_servers import EPOCHS, EXAMPLES, STEPS, train
from tests.unit.ps.servers import small_cluster

import stratagem

pytestmark = pytest.mark.multiprocess


@pytest.mark.timeout(180)  # the chief starts three times
def test_killed_tasks_are_started_again_alone(tmp_path: Path) -> None:
    kills = ["chief-0:0:15", "worker-0:1:3", "ps-1:1:20"]
    program = Path(__file__).with_name("trains_with_servers.py")
    options = ["--ps", "2", "--workers", "1", "--max-restarts", "3", "--log-dir", str(tmp_path / "logs")]
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(program), str(tmp_path), *kills],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    started = [line for line in done.stderr.splitlines() if "started again" in line]
    assert [line.split(" ", 1)[1].split(";")[0] for line in started] == [
        "chief 0 was ended by SIGKILL",
        "worker 0 was ended by SIGKILL",
        "ps 1 was ended by SIGKILL",
        "chief 0 lost a peer (exit code 43)",
    ]
    # Backups are written while training goes on: the last may not be whole yet, the one before it is.
    assert re.findall(r"Going on at epoch (\d), behind batch (\d+), from a backup", done.stdout) in (
        [("1", first), ("2", second)] for first in ("7", "14") for second in ("11", "18")
    )
    assert not (tmp_path / "backup").exists()
    ended = json.loads((tmp_path / "end.json").read_text())

    with small_cluster() as resolver:
        strategy = stratagem.ParameterServerStrategy(resolver)
        undisturbed = train(strategy, tmp_path)
        strategy.close()
    assert ended["times"] == undisturbed["times"] == [[1] * EXAMPLES] * EPOCHS
    assert ended["iterations"] == undisturbed["iterations"] == EPOCHS * STEPS
    assert ended["epochs"] == EPOCHS
    for own, expected in zip(ended["weights"], undisturbed["weights"], strict=True):
        np.testing.assert_array_equal(own, expected)
