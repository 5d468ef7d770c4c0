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
from stratagem.core import exits

pytestmark = pytest.mark.multiprocess


def run(options: list[str], folder: Path, *kills: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).with_name("trains_with_servers.py")
    return subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(program), str(folder), *kills],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.timeout(180)  # the chief starts three times
def test_killed_tasks_are_started_again_alone(tmp_path: Path) -> None:
    kills = ["chief-0:0:15", "worker-0:1:3", "ps-1:1:20"]
    options = ["--ps", "2", "--workers", "1", "--max-restarts", "3", "--log-dir", str(tmp_path / "logs")]
    done = run(options, tmp_path, *kills)
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


def test_lost_workers_of_an_elastic_run_are_started_again_however_often(tmp_path: Path) -> None:
    """With two as the least, functions wait while one is away."""
    kills = ["worker-0:0:5", "worker-1:0:17", "worker-0:1:3", "worker-1:2:9"]
    done = run(["--ps", "1", "--elastic", "2:2"], tmp_path, *kills)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("it is started again") == 4
    assert done.stdout.count("Workers left: 1. Functions begin again when there are 2") == 4
    ended = json.loads((tmp_path / "end.json").read_text())
    assert ended["times"] == [[1] * EXAMPLES] * EPOCHS
    assert ended["iterations"] == EPOCHS * STEPS


def test_the_chief_does_not_wait_for_workers_longer_than_it_was_told(tmp_path: Path) -> None:
    done = run(["--ps", "1", "--elastic", "2:2"], tmp_path, "hurries", "worker-0:0:5")
    assert done.returncode == exits.PEER_LOST, done.stdout + done.stderr
    assert "1 of at least 2 workers could be reached for 0.5 s; expected: worker 0." in done.stdout


def test_the_program_and_the_command_line_say_the_same(tmp_path: Path) -> None:
    done = run(["--ps", "1", "--elastic", "1:2"], tmp_path, "hurries")
    assert done.returncode == exits.FAILED, done.stdout + done.stderr
    assert "asks for 2 to 2 workers (elastic=), and the launcher was given --elastic 1:2" in done.stdout
