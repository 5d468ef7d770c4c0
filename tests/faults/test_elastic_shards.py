"""State in shards, of workers that die: the others put the lost shards together from copies, and train on."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults import test_elastic_hosts
from tests.faults.test_elastic import run_with_joiner, variables
from tests.faults.trains_sharded import ACCUMULATED, made
from tests.faults.trains_with_spares import EPOCHS, STEPS

from stratagem.core import exits

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_sharded.py")
SPARES, ELASTIC = ["--workers", "3", "--spares", "1"], ["--elastic", "1:3"]
LAST = f"0:{STEPS * EPOCHS}:SIGKILL"
"""A fault behind the last step, before the model is saved."""


def run(options: list[str], folder: Path, stage: str, *faults: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stratagem", "run", *options, str(PROGRAM), str(folder), stage, *faults]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables(), timeout=300)


def saved(file: Path, options: tuple[str, ...] = ()) -> list[np.ndarray]:
    """Return the weights and slots in a file."""
    model = made(ACCUMULATED if "accumulates" in options else None)
    optimizer: Any = model.optimizer
    optimizer.build(model.trainable_variables)
    model.load_weights(file)
    return [np.asarray(each) for each in [*model.weights, *optimizer.variables]]


def outcomes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in folder.glob("process-*.json")]


@functools.cache
def undisturbed(*options: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return what three workers have who hold everything whole and live."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(["--workers", "3"], Path(folder), "none", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return saved(Path(folder) / "model.keras", options), outcomes(Path(folder))[0]


def check(folder: Path, *options: str, to_the_bit: bool) -> list[dict[str, Any]]:
    """Compare what workers have with what it would be without faults and shards; return what they tell."""
    values, expected = undisturbed(*options)
    for own, other in zip(saved(folder / "model.keras", options), values, strict=True):
        if to_the_bit:
            np.testing.assert_array_equal(own, other)
        else:
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    found = outcomes(folder)
    for each in found:
        assert each["steps"] == expected["steps"][-len(each["steps"]) :]
        for name, numbers in each.get("history", {}).items():
            if name in expected["history"]:
                np.testing.assert_allclose(numbers, expected["history"][name], rtol=1e-5)
    return found


@pytest.mark.parametrize(
    ("stage", "faults"),
    [
        ("optimizer", ["0:5:SIGKILL"]),
        ("optimizer", [f"2:{STEPS}:SIGSTOP"]),
        ("gradients", ["1:1:SIGKILL", "0:12:SIGKILL"]),
        ("parameters", ["1:9:SIGKILL"]),
        ("parameters", [LAST]),
    ],
    ids=str,
)
def test_a_spare_takes_shards_and_no_bit_is_another(tmp_path: Path, stage: str, faults: list[str]) -> None:
    done = run(SPARES, tmp_path, stage, *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found = check(tmp_path, to_the_bit=True)
    assert all(any(axis is not None for axis in each["axes"]) for each in found)


@pytest.mark.parametrize("stage", ["none", "gradients"])
def test_gradients_that_were_accumulated_are_not_lost(tmp_path: Path, stage: str) -> None:
    """A worker dies between two updates. Without a death the same workers come to the same bits."""
    found = []
    for name, faults in [("disturbed", ["1:8:SIGKILL", "0:14:SIGKILL"]), ("undisturbed", [])]:
        folder = tmp_path / name
        folder.mkdir()
        done = run(SPARES, folder, stage, "accumulates", *faults)
        assert done.returncode == 0, done.stdout + done.stderr
        check(folder, "accumulates", to_the_bit=False)
        found.append(saved(folder / "model.keras", ("accumulates",)))
    for own, other in zip(*found, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(
    ("stage", "faults", "left"),
    [("optimizer", ["2:9:SIGKILL", "0:20:SIGKILL"], 1), ("parameters", ["1:5:SIGKILL"], 2)],
    ids=str,
)
def test_fewer_workers_divide_the_shards_anew(tmp_path: Path, stage: str, faults: list[str], left: int) -> None:
    done = run(ELASTIC, tmp_path, stage, *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(each["workers"] >= left for each in check(tmp_path, to_the_bit=False))


@pytest.mark.parametrize(
    ("options", "stage", "fault"),
    [(SPARES, "parameters", "1:test2:SIGKILL"), (ELASTIC, "parameters", "0:test5:SIGKILL")],
    ids=str,
)
def test_an_evaluation_begins_again_with_weights_in_shards(
    tmp_path: Path, options: list[str], stage: str, fault: str
) -> None:
    done = run(options, tmp_path, stage, "validates", fault)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"did {fault}").exists()
    check(tmp_path, "validates", to_the_bit=options is SPARES)


def test_the_chief_saves_wholes_after_each_epoch(tmp_path: Path) -> None:
    """The worker that dies has its turn in it; a new one takes part later."""
    done = run(SPARES, tmp_path, "parameters", "saves", f"2:{STEPS}:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    values = check(tmp_path, to_the_bit=True) and saved(tmp_path / "model.keras")
    last = saved(tmp_path / f"epoch-{EPOCHS}.keras")
    for own, other in zip(last, values, strict=True):
        np.testing.assert_array_equal(own, other)
    assert {file.name for file in tmp_path.glob("epoch-*")} == {f"epoch-{n + 1}.keras" for n in range(EPOCHS)}


@pytest.mark.parametrize("stage", ["optimizer", "parameters"])
def test_a_loop_of_its_own(tmp_path: Path, stage: str) -> None:
    done = run(SPARES, tmp_path, stage, "loops", "0:5:SIGKILL", "1:17:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path, "loops", to_the_bit=True)


def test_a_loop_with_fewer_workers(tmp_path: Path) -> None:
    done = run(ELASTIC, tmp_path, "parameters", "loops", "2:9:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    check(tmp_path, "loops", to_the_bit=False)


def test_shards_that_are_lost_with_their_copies_end_the_run(tmp_path: Path) -> None:
    """Of three workers two die at once: one of them had the other's copies. The next attempt resumes from a backup."""
    faults = ["0:11:SIGKILL", "1:11:SIGKILL"]
    options = ["--workers", "3", "--spares", "2"]
    done = run(options, tmp_path, "optimizer", "backs-up", *faults)
    assert done.returncode == exits.PEER_LOST, done.stdout + done.stderr
    assert "Workers were lost, and with them shards of the model or its optimizer." in done.stdout + done.stderr
    done = run(options, tmp_path, "optimizer", "backs-up", *faults)  # whose faults have been
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("Going on at epoch .*, from a backup", done.stdout + done.stderr)
    check(tmp_path, to_the_bit=True)


def test_without_copies_the_backup_is_resumed(tmp_path: Path) -> None:
    options = ["--workers", "2", "--spares", "1", "--max-restarts", "1"]
    done = run(options, tmp_path, "parameters", "no-copies", "backs-up", "0:11:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The run begins again" in done.stdout + done.stderr
    assert re.search("Going on at epoch .*, from a backup", done.stdout + done.stderr)
    check(tmp_path, to_the_bit=False)


def test_a_worker_that_joins_needs_no_copies(tmp_path: Path) -> None:
    run_with_joiner(tmp_path, [str(PROGRAM), str(tmp_path), "optimizer", "no-copies", "awaits"])
    assert {each["workers"] for each in check(tmp_path, to_the_bit=False)} == {2}


@pytest.mark.parametrize("options", [["--workers", "2", "--spares", "1"], ["--elastic", "1:4"]], ids=str)
def test_a_worker_of_two_hosts_dies(tmp_path: Path, options: list[str]) -> None:
    found = test_elastic_hosts.run(options, PROGRAM, str(tmp_path), "parameters", "1:9:SIGKILL")
    assert [code for code, _ in found] == [0, 0], found
    check(tmp_path, to_the_bit=False)


def test_copies_lie_on_the_other_host(tmp_path: Path) -> None:
    """A launcher is killed, and with it both workers of its host."""

    def kill_second(pids: list[int]) -> None:
        test_elastic_hosts.wait_for_step(tmp_path)
        os.kill(pids[1], signal.SIGKILL)

    given = [PROGRAM, str(tmp_path), "optimizer", test_elastic_hosts.STEP_9]
    (code, said), (killed, _) = test_elastic_hosts.run(["--elastic", "2:4"], *given, during=kill_second)
    assert (code, killed) == (0, -signal.SIGKILL), said
    assert {each["workers"] for each in check(tmp_path, to_the_bit=False)} == {2}
