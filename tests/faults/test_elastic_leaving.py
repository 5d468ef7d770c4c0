"""Workers that may change are told to leave (SIGTERM): the others continue, or all save and the run ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import test_elastic_hosts
from tests.faults.test_elastic import variables
from tests.faults.test_elastic_shards import ELASTIC, PROGRAM, SPARES, check, run
from tests.faults.trains_with_spares import STEPS

from stratagem.core import exits
from stratagem.core.clock import Deadline

pytestmark = pytest.mark.multiprocess

ALL = ["--elastic", "3:3"]
"""Options with which nobody can be done without."""

LEAVES = "leaves on purpose"


def resumed_behind(said: str) -> int:
    """Return behind which step of all a run has resumed."""
    if found := re.search(r"Going on at epoch (\d+)(?:, behind batch (\d+))?, from a backup", said):
        return (int(found[1]) - 1) * STEPS + int(found[2] or 0)
    found = re.search(r"Going on behind step (\d+)", said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.parametrize(
    ("options", "stage", "faults"),
    [
        (SPARES, "none", ["prepared:1", "0:5:SIGTERM"]),
        (SPARES, "parameters", ["prepared:1", "2:5:SIGTERM"]),
        (SPARES, "optimizer", ["prepared:1", "loops", "0:9:SIGTERM"]),
        (SPARES, "none", ["prepared:1", f"1:{STEPS}:SIGTERM"]),
        (ELASTIC, "none", ["0:5:SIGTERM", "1:14:SIGTERM"]),
        (ELASTIC, "none", ["loops", "2:5:SIGTERM"]),
    ],
    ids=str,
)
def test_the_others_continue_without_one_that_leaves(
    tmp_path: Path, options: list[str], stage: str, faults: list[str]
) -> None:
    done = run(options, tmp_path, stage, *faults)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    count = sum(fault.endswith("SIGTERM") for fault in faults)
    assert said.count(LEAVES) == said.count("This worker ends: it left on purpose") == count
    assert "was ended by" not in said  # nothing was cut
    check(tmp_path, *(["loops"] if "loops" in faults else []), to_the_bit=options is SPARES)


@pytest.mark.parametrize(
    ("options", "stage", "faults"),
    [
        (ALL, "none", ["1:5:launcher-SIGTERM"]),
        (SPARES, "parameters", ["0:12:launcher-SIGTERM"]),
        (ALL, "none", [f"2:{STEPS}:launcher-SIGHUP"]),
        (ALL, "optimizer", ["loops", "0:12:launcher-SIGTERM"]),
    ],
    ids=str,
)
def test_all_that_leave_save_the_step_they_have_come_to(
    tmp_path: Path, options: list[str], stage: str, faults: list[str]
) -> None:
    """A run with the backup then ends as one that nobody has told to leave."""
    ended = run(options, tmp_path, stage, "backs-up", *faults)
    said = ended.stdout + ended.stderr
    assert ended.returncode == exits.PREEMPTED, said
    assert "all who hold the state leave" in said
    assert "not all came" not in said
    loops = ["loops"] if "loops" in faults else []
    done = run(options, tmp_path, stage, "backs-up", *loops)
    assert done.returncode == 0, done.stdout + done.stderr
    told_at = int(faults[-1].split(":")[1])
    assert resumed_behind(done.stdout + done.stderr) > told_at
    check(tmp_path, *loops, to_the_bit=True)


@pytest.mark.parametrize("options", [[], ["loops"]], ids=str)
def test_too_few_workers_save_before_the_run_ends(tmp_path: Path, options: list[str]) -> None:
    """The one that is left does one more step, and saves the work of all."""
    faults = ["1:5:SIGKILL", "2:5:SIGKILL"]
    ended = run(["--elastic", "2:3"], tmp_path, "none", "backs-up", "hurries", *options, *faults)
    said = ended.stdout + ended.stderr
    assert ended.returncode == exits.PEER_LOST, said
    assert "There were fewer than 2 workers for 0 s: those who are left do one more step" in said
    done = run(["--workers", "3"], tmp_path, "none", "backs-up", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 6 <= resumed_behind(done.stdout + done.stderr) <= 8
    check(tmp_path, *options, to_the_bit=False)


def test_a_machine_that_is_wanted_back_leaves_and_the_others_continue(tmp_path: Path) -> None:
    def terminate_second(pids: list[int]) -> None:
        test_elastic_hosts.wait_for_step(tmp_path)
        os.kill(pids[1], signal.SIGTERM)

    arguments = [str(tmp_path), "none", test_elastic_hosts.STEP_9]
    ended = test_elastic_hosts.run(["--elastic", "1:2"], PROGRAM, *arguments, during=terminate_second)
    (code, said), (left, _) = ended
    assert (code, left) == (0, exits.PREEMPTED), ended
    assert LEAVES in said
    assert "was ended by" not in said
    check(tmp_path, to_the_bit=False)


def test_the_end_of_the_first_launcher_lets_the_workers_of_all_machines_save(tmp_path: Path) -> None:
    def terminate_first(pids: list[int]) -> None:
        test_elastic_hosts.wait_for_step(tmp_path)
        os.kill(pids[0], signal.SIGTERM)

    options, arguments = ["--elastic", "2:2"], [str(tmp_path), "none", "backs-up"]
    fault = test_elastic_hosts.STEP_9
    ended = test_elastic_hosts.run(options, PROGRAM, *arguments, fault, during=terminate_first)
    assert [code for code, _ in ended] == [exits.PREEMPTED] * 2, ended
    done = run(["--workers", "2"], tmp_path, "none", "backs-up")
    assert resumed_behind(done.stdout + done.stderr) > 9
    check(tmp_path, to_the_bit=False)


def test_a_second_signal_to_the_launcher_ends_processes_that_do_not_hear_the_first(tmp_path: Path) -> None:
    program, deadline = tmp_path / "deaf.py", Deadline(60.0)
    program.write_text(
        "import pathlib, signal, sys, threading\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "pathlib.Path(sys.argv[1], 'ready').touch()\n"
        "threading.Event().wait(120)\n"
    )
    options = ["--elastic", "1:1", "--grace", "100"]
    command = [sys.executable, "-m", "stratagem", "run", *options, str(program), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables()) as launcher:
        while not (tmp_path / "ready").exists():
            assert not deadline.expired
            deadline.clock.wait(0.01)
        launcher.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(1.0)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(20.0) == 128 + signal.SIGINT
