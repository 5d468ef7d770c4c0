"""Workers die under `stratagem run --spares`: the others train on, a spare takes the place, and no bit is another."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.faults.trains_with_spares import EPOCHS, STEPS

from stratagem.core.cores import available_cores, divide_cores

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_with_spares.py")


def run(folder: Path, workers: int, spares: int, *faults: str) -> subprocess.CompletedProcess[str]:
    options = ["--workers", str(workers), *(["--spares", str(spares)] if spares else [])]
    return subprocess.run(
        [sys.executable, "-m", "stratagem", "run", *options, str(PROGRAM), str(folder), *faults],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


def outcomes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("worker-*.json"))]


@functools.cache
def undisturbed(workers: int, *options: str) -> dict[str, Any]:
    """Return what workers without spares have at the end."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), workers, 0, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        first, *others = outcomes(Path(folder))
        assert all(each == first for each in others)
        assert len(others) == workers - 1
        return first


@pytest.mark.parametrize(
    ("workers", "faults"),
    [
        (2, ["1:5:SIGKILL"]),
        (2, ["0:12:SIGKILL"]),
        (2, [f"1:{STEPS}:SIGKILL"]),
        (2, ["1:1:SIGKILL"]),
        (2, ["prepared:1", "1:5:SIGKILL"]),
        (2, ["prepared:1", "asks", "0:5:SIGKILL"]),
        (2, ["prepared:2", "validates", "0:5:SIGSTOP", "0:test2:SIGKILL"]),
        (3, ["prepared:3", "1:5:SIGKILL", "2:5:SIGKILL", "0:14:SIGKILL"]),
        (2, ["0:5:SIGSTOP"]),
        (2, ["1:3:SIGKILL", "0:11:SIGKILL", "1:19:SIGSTOP"]),
        (3, ["1:5:SIGKILL", "2:5:SIGKILL", "0:14:SIGKILL"]),
        (2, ["1:scope:SIGKILL"]),
        (2, ["validates", "1:test2:SIGKILL"]),
        (2, ["validates", "1:13:SIGKILL"]),
        (2, ["validates", "dataset", "0:13:SIGKILL"]),
        (3, ["validates", "0:test1:SIGSTOP", "1:13:SIGKILL"]),
    ],
    ids=str,
)
def test_the_end_is_that_of_a_run_without_faults(tmp_path: Path, workers: int, faults: list[str]) -> None:
    options = [each for each in faults if each in ("validates", "dataset")]
    count = sum("SIG" in each for each in faults)
    done = run(tmp_path, workers, count, *faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("did *"))) == count
    found, expected = outcomes(tmp_path), undisturbed(workers, *options)
    assert len(found) == workers
    for each in found:
        for name in ("weights", "slots"):
            assert each[name] == expected[name], name
        assert each["history"].keys() == expected["history"].keys()
        for name, values in expected["history"].items():
            # Those who are left evaluate alone where one dies meanwhile: they add in another order.
            assert each["history"][name] == (pytest.approx(values, rel=1e-6) if "val_" in name else values), name
        # Who came later has not taken the first steps; nobody took one twice or left one out.
        assert each["steps"] == expected["steps"][-len(each["steps"]) :]
    named = sorted(re.findall(r"at last: (\w+ \d+ of \d+)", done.stdout))
    assert named == [f"worker {rank} of {workers}" for rank in range(workers)]
    if "scope" not in faults[0]:
        assert max(len(each["steps"]) for each in found) <= EPOCHS * STEPS
        assert len(re.findall(r"World \d+: \d workers from step \d+, \d+\.\d s later", done.stderr + done.stdout)) >= 1


@pytest.mark.skipif(available_cores() < 2, reason="two workers have one core")
@pytest.mark.parametrize("rank", [0, 1])
def test_each_worker_has_cores_of_its_own(tmp_path: Path, rank: int) -> None:
    """Also one that takes the place of another: on the core of a third, steps took twice as long."""
    done = run(tmp_path, 2, 1, "prepared:1", f"{rank}:5:SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    for own, cores in enumerate(divide_cores(sorted(os.sched_getaffinity(0)), 2)):
        of_threads = json.loads((tmp_path / f"cores-{own}").read_text())
        assert all(each == list(cores) for each in of_threads)


def test_a_spare_that_fails_before_it_trains_does_not_end_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, 2, 1, "stuck", "fails")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "ValueError: no room for the data" in said
    assert [each["weights"] for each in outcomes(tmp_path)] == [undisturbed(2)["weights"]] * 2


def test_an_exception_of_the_program_ends_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, 2, 1, "1:5:raise")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "ValueError: a mistake of the program" in said
    assert re.search(r"process [01] failed with exit code 1 ", said)
    assert outcomes(tmp_path) == []


def test_the_exit_code_of_the_program_is_that_of_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, 2, 1, "exit")
    assert done.returncode == 7, done.stdout + done.stderr
    assert [each["weights"] for each in outcomes(tmp_path)] == [undisturbed(2)["weights"]] * 2


def test_a_new_worker_that_comes_to_another_step_than_the_others_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, 2, 1, "before", "1:5:SIGKILL")
    assert done.returncode == 1
    assert (
        "came to a step that does not belong to the `fit`, or the loop, of the other workers"
        in done.stdout + done.stderr
    )
    assert outcomes(tmp_path) == []
