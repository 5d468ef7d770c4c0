"""Workers die in a loop of the program's own: it continues from the last commit, and no number is another."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults import test_elastic_shards
from tests.faults.test_elastic_shards import ELASTIC, SPARES
from tests.faults.trains_in_a_loop import EPOCHS, STEPS

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_in_a_loop.py")
ROOT = Path(__file__).parents[2]
ALL_STEPS = [[epoch, epoch * STEPS + step + 1] for epoch in range(EPOCHS) for step in range(STEPS)]


def run(folder: Path, options: list[str], *faults: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(PROGRAM), str(folder), *faults],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
    )


def outcomes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("worker-*.json"))]


@functools.cache
def undisturbed(workers: int, *options: str) -> dict[str, Any]:
    """Return what workers have at the end whose number cannot change."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), ["--workers", str(workers)], *options)
        assert done.returncode == 0, done.stdout + done.stderr
        first, *others = outcomes(Path(folder))
        assert all(each == first for each in others)
        assert len(others) == workers - 1
        assert (set(first["seen"]), set(first["tested"])) == ({EPOCHS}, {2 * EPOCHS})
        return first


@pytest.mark.parametrize(
    ("workers", "faults"),
    [
        pytest.param(2, ["1:5:SIGKILL"], marks=pytest.mark.quick),
        (2, ["0:mid9:SIGKILL", "1:15:SIGSTOP"]),
        (2, ["0:epoch1:SIGKILL"]),
        (2, ["1:mid1:SIGKILL"]),
        (2, [f"0:mid{EPOCHS * STEPS}:SIGKILL"]),
        (3, ["1:5:SIGKILL", "2:5:SIGKILL", "0:mid14:SIGKILL"]),
    ],
    ids=str,
)
def test_a_spare_takes_the_place_and_no_bit_is_another(tmp_path: Path, workers: int, faults: list[str]) -> None:
    done = run(tmp_path, ["--workers", str(workers), "--spares", str(len(faults))], *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found, expected = outcomes(tmp_path), undisturbed(workers)
    assert len(found) == workers
    for each in found:
        for name in ("weights", "slots", "history", "seen", "tested"):
            assert each[name] == expected[name], name
        # Who came later has not taken the first steps; nobody committed one twice or left one out.
        assert each["steps"] == ALL_STEPS[-len(each["steps"]) :]


@pytest.mark.parametrize(
    ("elastic", "faults"),
    [("1:3", ["1:5:SIGKILL", "0:mid12:SIGKILL"]), ("1:2", ["0:epoch1:SIGKILL"]), ("2:3", ["2:mid9:SIGSTOP"])],
    ids=str,
)
def test_fewer_workers_continue_with_the_numbers_of_one_process(
    tmp_path: Path, elastic: str, faults: list[str]
) -> None:
    done = run(tmp_path, ["--elastic", elastic], "plain", *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found, expected = outcomes(tmp_path), undisturbed(1, "plain")
    least, most = map(int, elastic.split(":"))
    assert least <= len(found) <= most
    for each in found:
        assert each["seen"] == expected["seen"]  # each row once an epoch
        assert each["tested"] == expected["tested"]
        assert each["steps"] == ALL_STEPS[-len(each["steps"]) :]
        assert set(each["sizes"]) <= set(range(least, most + 1))
        np.testing.assert_allclose(each["history"], expected["history"], rtol=1e-5)
        for own, of_one in zip(each["values"], expected["values"], strict=True):
            np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)


def test_a_variable_that_the_state_lacks_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, ["--workers", "2", "--spares", "1"], "forgets", "1:5:SIGKILL")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "A new worker came to a step that uses variables which the ElasticState does not hold: mean/total" in said
    assert outcomes(tmp_path) == []


def test_a_program_before_the_loop_is_an_error_of_a_new_worker(tmp_path: Path) -> None:
    done = run(tmp_path, ["--workers", "2", "--spares", "1"], "before", "1:5:SIGKILL")
    assert done.returncode == 1
    assert "came to a step that does not belong to the `fit`, or the loop, of the other workers" in (
        done.stdout + done.stderr
    )
    assert outcomes(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "stage", "faults"),
    [
        (SPARES, "none", ["by-batch", "1:9:SIGKILL"]),
        (SPARES, "none", ["by-batch", "0:12:SIGSTOP", "0:17:SIGTERM"]),
        (SPARES, "none", ["fits", "0:12:SIGKILL"]),
        (SPARES, "optimizer", ["fits", "2:3:SIGKILL", "1:19:SIGTERM"]),
        (ELASTIC, "none", ["by-batch", "1:9:SIGKILL"]),
        (ELASTIC, "parameters", ["fits", "2:11:SIGKILL"]),
    ],
    ids=str,
)
def test_steps_of_a_loop_may_be_those_of_keras(
    tmp_path: Path, options: list[str], stage: str, faults: list[str]
) -> None:
    """`fit`, as Horovod's users call it, is done again from the commit before it."""
    done = test_elastic_shards.run(options, tmp_path, stage, *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == len(faults) - 1
    found = test_elastic_shards.check(tmp_path, faults[0], to_the_bit=options is SPARES)
    assert len(found) >= 2  # one that was told to leave, when nobody could take its place, may go behind the loop
