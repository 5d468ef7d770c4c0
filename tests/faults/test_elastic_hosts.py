"""Workers of two hosts die under `stratagem run --nodes 2`, with spares or fewer workers: training goes on.

Both launchers run on this machine. A host is known by its name (`named_host`), so its workers have memory in common and
reach those of the other by connections only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests import machines
from tests.faults import test_elastic, test_spares
from tests.machines import Machine, Task
from tests.networks import Network, address_of, why_there_are_none

from stratagem.cluster.lifeline import HOST_SECONDS
from stratagem.core import exits
from stratagem.core.clock import Deadline

pytestmark = pytest.mark.multiprocess

HERE = Path(__file__).parent
SECONDS = 300.0

Ended = list[tuple[int, str]]


STEP_9 = "0:9:SIGCONT"
"""A fault that is none: it leaves a file when worker 0 comes to this step."""


def wait_for_step(folder: Path) -> None:
    """Wait until worker 0 has come to step 9."""
    deadline = Deadline(SECONDS / 2)
    while not (folder / f"did {STEP_9}").exists():
        assert not deadline.expired
        deadline.clock.wait(0.01)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def run(
    options: list[str],
    program: Path,
    *arguments: str,
    during: Callable[[list[int]], object] = lambda pids: None,
    of_first: Sequence[str] = (),
) -> Ended:
    """Run a program on two hosts; return the exit code and the output of each launcher.

    Args:
        options: Of `stratagem run`, besides those that name the nodes.
        program: The program.
        arguments: Its arguments.
        during: Given the pids of the launchers while they run.
        of_first: Options of the first launcher alone.
    """
    address = free_address()
    folders = [str(HERE / "named_host"), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, folders))
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, "STRATAGEM_SECRET": "a secret of two hosts"}
    launchers = []
    for rank in range(2):
        nodes = ["--nodes", "2", "--node-rank", str(rank), "--coordinator", address]
        all_options = [*nodes, *options, *(of_first if rank == 0 else ())]
        command = [sys.executable, "-m", "stratagem", "run", *all_options, str(program), *arguments]
        launchers.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**variables, "TEST_HOST": f"host-{'ab'[rank]}"},
            )
        )
    try:
        during([launcher.pid for launcher in launchers])
        said = [launcher.communicate(timeout=SECONDS)[0] for launcher in launchers]
    finally:
        for launcher in launchers:
            if launcher.poll() is None:
                launcher.terminate()
                launcher.wait(60.0)
    return [(launcher.returncode, each) for launcher, each in zip(launchers, said, strict=True)]


@pytest.mark.parametrize(
    ("workers", "faults"),
    [
        (1, []),
        (1, ["1:5:SIGKILL", "0:12:SIGKILL"]),
        (1, ["1:5:SIGSTOP"]),
        (2, ["3:5:SIGKILL", "2:14:SIGSTOP", "0:19:SIGKILL"]),
    ],
    ids=str,
)
def test_spares_of_any_host_take_over(tmp_path: Path, workers: int, faults: list[str]) -> None:
    """Two workers sum as two of one host do, so every bit is the same; four of two hosts sum in another order."""
    ended = run(["--workers", str(workers), "--spares", "2"], test_spares.PROGRAM, str(tmp_path), *faults)
    assert [code for code, _ in ended] == [0, 0], ended
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found, expected = test_spares.outcomes(tmp_path), test_spares.undisturbed(2 * workers)
    assert len(found) == 2 * workers
    for each in found:
        assert each["weights"] == found[0]["weights"]
        assert each["slots"] == found[0]["slots"]
        if workers == 1:
            assert each == {**expected, "steps": expected["steps"][-len(each["steps"]) :]}
        for name, values in expected["history"].items():
            np.testing.assert_allclose(each["history"][name], values, rtol=1e-5)
        assert each["steps"] == expected["steps"][-len(each["steps"]) :]
    if faults:
        assert "from step" in ended[0][1]
        assert all("is frozen (stopped by a signal)" in ended[0][1] for fault in faults if "STOP" in fault)


@pytest.mark.parametrize(
    ("most", "faults"),
    [
        (4, ["3:9:SIGKILL", "0:20:SIGKILL"]),
        (2, ["0:9:SIGKILL"]),
        (2, ["1:9:SIGKILL"]),
        (2, [f"0:test{test_elastic.EPOCHS * test_elastic.TESTS + 2}:SIGKILL"]),
    ],
    ids=str,
)
def test_fewer_workers_of_two_hosts_train_on(tmp_path: Path, most: int, faults: list[str]) -> None:
    """Of four, three: the hosts have unequal numbers of workers until another process has come.

    Of two, one: a host has none for a while; in the last, behind `fit`, that of the coordinator has none to the end.
    """
    options = ["--elastic", f"1:{most}", "--grace", "0.1"]  # an early end of a launcher would show
    ended = run(options, test_elastic.PROGRAM, str(tmp_path), str(most), *faults)
    assert [code for code, _ in ended] == [0, 0], ended
    assert len(list(tmp_path.glob("did *"))) == len(faults)
    found, expected = test_elastic.outcomes(tmp_path), test_elastic.of_keras()
    assert sorted(each["rank"] for each in found) == list(range(len(found)))
    for each in found:
        assert "test" in faults[0] or most - 1 in each["sizes"]
        np.testing.assert_allclose(each["history"]["loss"], expected["history"]["loss"], rtol=1e-5)
        for own, of_one in zip(each["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each["predicted"], expected["predicted"], rtol=1e-4, atol=1e-5)


def test_the_first_launcher_shows_the_processes_of_all_machines(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    of_first = ["--log-json", str(numbers), "--report", str(tmp_path / "report.html")]
    options = ["--workers", "1", "--spares", "1"]
    shown = "shown:numbers.json:process 2"  # a shorter run may end before it is
    ended = run(options, test_spares.PROGRAM, str(tmp_path), shown, of_first=of_first)
    assert [code for code, _ in ended] == [0, 0], ended
    last = {(each := json.loads(line))["task"]: each for line in numbers.read_text().splitlines()}
    trained = {name: each["host"] for name, each in last.items() if each["steps"] > 1}
    assert trained == {"process 0": "", "process 2": "host-b"}
    assert {name: each["host"] for name, each in last.items()} == {**trained, "process 1": "", "process 3": "host-b"}
    report = (tmp_path / "report.html").read_text()
    assert "process 2" in report
    assert "process 3" in report


def test_a_host_that_is_gone_is_done_without(tmp_path: Path) -> None:
    """Its launcher is killed, and so are its workers; the others have its rows from then on."""

    def kill_second(pids: list[int]) -> None:
        wait_for_step(tmp_path)
        os.kill(pids[1], signal.SIGKILL)

    program = test_elastic.PROGRAM
    (code, said), (killed, _) = run(["--elastic", "2:4"], program, str(tmp_path), "4", STEP_9, during=kill_second)
    assert (code, killed) == (0, -signal.SIGKILL), said
    found, expected = test_elastic.outcomes(tmp_path), test_elastic.of_keras()
    assert sorted(each["rank"] for each in found) == [0, 1]
    for each in found:
        sizes = each["sizes"]  # steps by three are possible: the two workers end one after the other
        assert (sizes[0], sizes[-1]) == (4, 2)
        assert sizes == sorted(sizes, reverse=True)
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(each["history"][name], expected["history"][name], rtol=1e-5)
        for own, of_one in zip(each["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each["predicted"], expected["predicted"], rtol=1e-4, atol=1e-5)
    assert "(host host-b, pid" in said


def test_the_launchers_of_a_run_whose_coordinator_is_killed_end(tmp_path: Path) -> None:
    def kill_first(pids: list[int]) -> None:
        wait_for_step(tmp_path)
        os.kill(pids[0], signal.SIGKILL)

    (_, _), (code, said) = run(
        ["--elastic", "2:2"], test_elastic.PROGRAM, str(tmp_path), "2", STEP_9, during=kill_first
    )
    assert code == 43, said
    assert "The coordinator, which is the launcher of node 0, is gone" in said


def test_an_exception_on_one_host_ends_the_run_on_all(tmp_path: Path) -> None:
    ended = run(["--workers", "1", "--spares", "1"], test_spares.PROGRAM, str(tmp_path), "1:5:raise")
    assert [code for code, _ in ended] == [1, 1], ended
    assert any("ValueError: a mistake of the program" in said for _, said in ended)


def test_a_link_that_goes_down_parts_two_machines(tmp_path: Path) -> None:
    """Those at the coordinator go on when the others have been silent for five seconds; the others end."""
    if why_not := why_there_are_none():
        pytest.skip(why_not)
    parted: list[float] = []

    def part(network: Network) -> None:
        wait_for_step(tmp_path)
        network.lose(1.0)
        parted.append(time.monotonic())

    def node(rank: int) -> Machine:
        options = ["--nodes", "2", "--node-rank", str(rank), "--coordinator", f"{address_of(0)}:12345"]
        program = [str(test_elastic.PROGRAM), str(tmp_path), "2", STEP_9]
        command = [sys.executable, "-m", "stratagem", "run", *options, "--elastic", "1:2", *program]
        return Machine(f"host-{rank}", [Task(command, {})])

    variables = {**test_elastic.variables(), "STRATAGEM_SECRET": "a secret of two hosts"}
    ((first,), (second,)) = machines.run([node(0), node(1)], tmp_path, variables, part)
    assert first.code == 0, first.output
    assert second.code == exits.PEER_LOST, second.output
    assert time.monotonic() - parted[0] < HOST_SECONDS + 20.0
    # Which of the two is worker 0 depends on who has joined first.
    assert re.search(r"worker \d \(host host-1, pid \d+\) was silent for 5 s, .* World 2: 1 worker from", first.output)
    assert "The coordinator, which is the launcher of node 0, is gone, or the network is down" in second.output
    (found,), expected = test_elastic.outcomes(tmp_path), test_elastic.of_keras()
    assert set(found["sizes"]) == {2, 1}
    np.testing.assert_allclose(found["history"]["loss"], expected["history"]["loss"], rtol=1e-5)
    for own, of_one in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(own, of_one, rtol=1e-4, atol=1e-5)
