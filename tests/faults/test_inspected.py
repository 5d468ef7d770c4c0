"""`Inspect` under `stratagem run --spares` and `--elastic`: what it finds when workers have changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.trains_inspected import EVERY, STEPS

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_inspected.py")
ROOT = Path(__file__).parents[2]
SPARES, ELASTIC = ["--workers", "2", "--spares", "1"], ["--elastic", "1:3"]


def run(folder: Path, options: list[str], *faults: str) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(PROGRAM), str(folder), *faults],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
    )
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("process-*.json"))]
    assert found, done.stdout + done.stderr
    assert len(list(folder.glob("did *"))) == sum(fault.endswith("SIGKILL") for fault in faults)
    return found


@pytest.mark.parametrize("options", [SPARES, ELASTIC, ["--elastic", "1:2"]], ids=["spares", "elastic", "one left"])
def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path, options: list[str]) -> None:
    for each in run(tmp_path, options, "1:8:SIGKILL"):
        assert each["error"] == ""
        assert each["steps"][-1] == [0, STEPS - 1]
        assert np.isfinite(np.concatenate([np.ravel(weight) for weight in each["weights"]])).all()


@pytest.mark.parametrize("options", [SPARES, ELASTIC], ids=["spares", "elastic"])
def test_a_bit_that_flips_later_is_found(tmp_path: Path, options: list[str]) -> None:
    flipped = 20
    for each in run(tmp_path, options, "1:8:SIGKILL", f"flip:{flipped}"):
        assert "hidden/kernel" in each["error"]
        (first, last) = map(int, re.findall(r"between step (\d+) and (\d+)", each["error"])[0])
        assert first <= flipped <= last <= flipped + EVERY


@pytest.mark.parametrize("options", [SPARES, ELASTIC], ids=["spares", "elastic"])
def test_nan_is_located_also_in_the_window_in_which_a_worker_came(tmp_path: Path, options: list[str]) -> None:
    """Worker 1 dies behind step 13; the window ends with step 18, and the row is bad in step 17."""
    for each in run(tmp_path, options, "1:13:SIGKILL", "nan:17"):
        assert re.search(r"Step 17 was given NaN or infinity in its input: x in row 7 of 12", each["error"]), each
        assert np.isfinite(np.concatenate([np.ravel(weight) for weight in each["weights"]])).all()
