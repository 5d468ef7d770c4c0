"""Workers die under `stratagem run --elastic`: the others train on, fewer, and the numbers are those of one process."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.trains_elastic import EPOCHS, STEPS, TESTS

from stratagem.core.clock import Clock, Deadline

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_elastic.py")
ROOT = Path(__file__).parents[2]


def run(folder: Path, elastic: str | None, *faults: str) -> subprocess.CompletedProcess[str]:
    workers = elastic.partition(":")[2] if elastic else "0"
    launch = ["-m", "stratagem", "run", "--elastic", elastic] if elastic else []
    return run_program(launch, folder, workers, *faults)


def variables() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}


def run_program(launch: list[str], folder: Path, workers: str, *faults: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launch, str(PROGRAM), str(folder), workers, *faults]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables())


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


def test_the_program_says_how_few_workers_may_train(tmp_path: Path) -> None:
    """With one spare and three faults: it takes one place, and the group shrinks twice."""
    launch = ["-m", "stratagem", "run", "--workers", "3", "--spares", "1"]
    faults = ["1:3:SIGKILL", "2:9:SIGKILL", "0:9:SIGKILL"]
    done = run_program(launch, tmp_path, "3", "asks:1:3", "prepared:1", *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == 3
    found, expected = outcomes(tmp_path), of_keras()
    for each in found:
        np.testing.assert_allclose(each["history"]["loss"], expected["history"]["loss"], rtol=1e-5)
        for own, of_one in zip(each["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)


def test_nobody_waits_for_a_worker_that_prepares(tmp_path: Path) -> None:
    """It loads its data for as long as the others train; then nobody can take part any more."""
    done = run(tmp_path, "1:2", "stuck", "1:5:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = outcomes(tmp_path)
    assert found["sizes"] == [2] * 5 + [1] * (EPOCHS * STEPS - 5)
    assert found["cores"] == sorted(os.sched_getaffinity(0))  # those of the lost one too
    np.testing.assert_allclose(found["history"]["loss"], of_keras()["history"]["loss"], rtol=1e-5)


def test_a_worker_that_fails_before_it_trains_does_not_end_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, "1:2", "stuck", "fails", "1:5:SIGKILL")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "ValueError: no room for the data" in said
    assert len(outcomes(tmp_path)) == 1


def run_with_joiner(folder: Path, program: list[str]) -> str:
    """Run a program with one worker, and when that waits, start another that joins it; return what is said.

    Args:
        folder: Where the worker leaves the file "waits".
        program: The program and its arguments.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    own = {**variables(), "STRATAGEM_SECRET": "a secret of this test"}
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "1", "--spares", "1", "--coordinator", address]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, *program], env=own, **pipes) as launched:
        deadline = Deadline(120.0)
        while not (folder / "waits").exists() and launched.poll() is None and not deadline.expired:
            Clock().wait(0.05)
        joining = {**own, "STRATAGEM_ELASTIC": address}
        joined = subprocess.run(
            [sys.executable, *program], capture_output=True, check=False, env=joining, timeout=120.0
        )
        said: str = launched.communicate(timeout=120.0)[0]
    assert (launched.returncode, joined.returncode) == (0, 0), said
    return said


def test_a_worker_that_the_launcher_did_not_start_joins(tmp_path: Path) -> None:
    """Up to `max_workers`: it needs the coordinator's address and the secret."""
    said = run_with_joiner(tmp_path, [str(PROGRAM), str(tmp_path), "1", "asks:1:2", "awaits"])
    assert "1 more can take part. World 2: 2 workers" in said
    found, expected = outcomes(tmp_path), of_keras()
    assert sorted(each["rank"] for each in found) == [0, 1]
    for each in found:
        assert each["sizes"] == [1] * 5 + [2] * (EPOCHS * STEPS - 5)  # a new worker gets the state of callbacks too
        np.testing.assert_allclose(each["history"]["loss"], expected["history"]["loss"], rtol=1e-5)
        for own_values, of_one in zip(each["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(own_values, of_one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (["--workers", "2"], "elastic= was given, and the 2 workers were started without a coordinator"),
        (["--elastic", "1:2"], "asks for 2 to 2 workers (elastic=), and the launcher was given --elastic 1:2"),
    ],
)
def test_options_that_nobody_follows_are_an_error(tmp_path: Path, launch: list[str], message: str) -> None:
    done = run_program(["-m", "stratagem", "run", *launch], tmp_path, "2", "asks:2:2")
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert outcomes(tmp_path) == []
