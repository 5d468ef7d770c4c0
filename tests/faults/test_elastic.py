"""Workers die under `stratagem run --elastic`: the others train on, fewer, and the numbers are those of one process."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.trains_elastic import EPOCHS, STEPS, TESTS

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_elastic.py")
ROOT = Path(__file__).parents[2]


def run(folder: Path, elastic: str | None, *faults: str) -> subprocess.CompletedProcess[str]:
    workers = elastic.partition(":")[2] if elastic else "0"
    launch = ["-m", "stratagem", "run", "--elastic", elastic] if elastic else []
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *launch, str(PROGRAM), str(folder), workers, *faults],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
    )


def outcomes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in folder.glob("process-*.json")]


@functools.cache
def of_keras() -> dict[str, Any]:
    """Return what one process has at the end."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), None)
        assert done.returncode == 0, done.stdout + done.stderr
        return outcomes(Path(folder))[0]


@pytest.mark.parametrize(
    ("elastic", "faults", "least"),
    [
        ("1:2", ["1:5:SIGKILL"], 1),
        ("1:2", ["0:12:SIGKILL"], 1),
        ("1:3", ["1:3:SIGKILL", "0:3:SIGKILL"], 1),
        ("2:3", ["2:9:SIGSTOP", "0:20:SIGKILL"], 2),
        ("1:3", [f"0:test{TESTS + 1}:SIGKILL", "1:9:SIGKILL"], 1),
        ("1:2", [f"0:test{EPOCHS * TESTS + 2}:SIGKILL"], 1),
        ("2:2", [f"1:test{EPOCHS * TESTS + 1}:SIGKILL"], 1),
    ],
    ids=str,
)
def test_fewer_workers_train_on(tmp_path: Path, elastic: str, faults: list[str], least: int) -> None:
    done = run(tmp_path, elastic, *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found, expected = outcomes(tmp_path), of_keras()
    assert sorted(each["rank"] for each in found) == list(range(len(found)))
    assert least <= len(found) <= int(elastic.partition(":")[2])
    steps = [[epoch, batch] for epoch in range(EPOCHS) for batch in range(STEPS)]
    for each in found:
        assert each["steps"] == steps[-len(each["steps"]) :]  # nobody took one twice or left one out
        assert set(each["sizes"]) <= set(range(least, int(elastic.partition(":")[2]) + 1))
        changes = [list(pair) for pair in itertools.pairwise(each["sizes"]) if pair[0] != pair[1]]
        assert [pair for pair in each["heard"] if pair[0] != pair[1]] == changes
        if elastic != "2:2":
            assert each["history"]["workers"][-1] == each["sizes"][-1]
        for name in ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"):
            np.testing.assert_allclose(each["history"][name], expected["history"][name], rtol=1e-5)
        for name in ("weights", "slots"):
            for own, of_one in zip(each[name], expected[name], strict=True):
                np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)
        for name in ("evaluated", "worst"):
            np.testing.assert_allclose(each[name], expected[name], rtol=1e-5)
        np.testing.assert_allclose(each["predicted"], expected["predicted"], rtol=1e-4, atol=1e-5)
    assert expected["worst"][0] == pytest.approx(expected["history"]["val_loss"][0], rel=1e-5)
    # The chief writes, also another one than at the start.
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == list(range(EPOCHS))
    np.testing.assert_allclose([float(row["loss"]) for row in rows], expected["history"]["loss"], rtol=1e-5)
