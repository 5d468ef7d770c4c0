"""`stratagem demo`: two workers train, and a copy of its program runs without the launcher."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.multiprocess


def run(*arguments: str, home: Path) -> str:
    """Return what Python prints in an empty folder, which is also its home."""
    variables = {**os.environ, "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, *arguments], env=variables, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.quick
def test_demo_trains_on_two_workers(tmp_path: Path) -> None:
    output = run("-m", "stratagem", "demo", "--epochs", "2", home=tmp_path)

    assert "2 replicas on 2 workers" in output
    ((loss, accuracy),) = re.findall(r"On 360 digits it has not seen: loss (\S+), accuracy (\S+)%\.", output)
    assert (float(loss) < 0.5, float(accuracy) > 85) == (True, True)
    assert "What to try next:" in output


def test_a_copy_of_its_program_runs_alone(tmp_path: Path) -> None:
    assert run("-m", "stratagem", "demo", "--copy", "train.py", home=tmp_path).startswith("train.py is written.")
    output = run("train.py", "--epochs", "1", home=tmp_path)

    assert re.search(r"On 360 digits it has not seen: loss \d", output) is not None
