"""`stratagem demo` with a basic install, by somebody who has set nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fresh import run_python

pytestmark = pytest.mark.multiprocess


@pytest.mark.quick
def test_demo_trains_on_two_workers(tmp_path: Path) -> None:
    done = run_python("-m", "stratagem", "demo", "--epochs", "2", home=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 replicas on 2 workers" in done.stdout
    ((loss, accuracy),) = re.findall(r"On 360 digits it has not seen: loss (\S+), accuracy (\S+)%\.", done.stdout)
    assert (float(loss) < 0.5, float(accuracy) > 85) == (True, True)
    assert "What to try next:" in done.stdout


def test_a_copy_of_its_program_runs_alone(tmp_path: Path) -> None:
    copied = run_python("-m", "stratagem", "demo", "--copy", "train.py", home=tmp_path)
    assert copied.returncode == 0, copied.stderr
    done = run_python("train.py", "--epochs", "1", home=tmp_path)

    assert done.returncode == 0, done.stderr
    assert re.search(r"On 360 digits it has not seen: loss \d", done.stdout) is not None
