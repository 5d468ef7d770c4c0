"""Launchers of other machines and the coordinator: what they tell each other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from tests.unit.elastic.test_server import LIMITS, SECONDS, SECRET, Cluster, cluster, expect, form, step, until

from stratagem.core import exits
from stratagem.core.clock import Deadline
from stratagem.core.progress import Progress
from stratagem.elastic.client import join
from stratagem.elastic.events import End, Form, Go, Stop
from stratagem.elastic.hello import JoinHello, LauncherHello, read_hello
from stratagem.elastic.launchers import Ended, Status
from stratagem.elastic.limits import Limits
from stratagem.elastic.remote import RemoteCoordinator
from stratagem.elastic.wire import VERSION

__all__ = ["cluster"]

Launch = Callable[..., "Launcher"]


class Launcher:
    """A launcher of another machine, as a test needs it."""

    def __init__(self, address: str, **arguments: Any) -> None:
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.killed: SimpleQueue[int] = SimpleQueue()
        self.pids: list[int] = []
        hello = arguments.pop("hello", LauncherHello("h", 1, 2))
        self.coordinator = RemoteCoordinator(
            address,
            arguments.pop("secret", SECRET),
            hello,
            pids=lambda: self.pids,
            kill=self.killed.put,
            say=self.lines.put,
            **{"limits": LIMITS, **arguments},
        )
        self.coordinator.start()


@pytest.fixture
def launch() -> Iterator[Launch]:
    made: list[Launcher] = []

    def make(address: str, **arguments: Any) -> Launcher:
        made.append(Launcher(address, **arguments))
        return made[-1]

    yield make
    for launcher in made:
        launcher.coordinator.stop()


def test_the_end_of_a_process_is_told_in_words(cluster: Callable[..., Cluster], launch: Launch) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    members = run.train(2)
    until(lambda: launcher.coordinator._line)
    launcher.coordinator.ended(Ended(102, "was ended by SIGKILL"))
    stop = expect(members[0], Stop)
    assert (stop.cut, stop.reason) == (True, "worker 1 (host h, pid 102) was ended by SIGKILL, last seen after step 0")
    assert run.killed.empty()


def test_what_processes_do_is_shown_until_their_launcher_is_gone(
    cluster: Callable[..., Cluster], launch: Launch
) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    launcher.coordinator.show({"process 2": {"steps": 1}})  # there is no connection yet, perhaps
    until(lambda: launcher.coordinator._line)
    launcher.coordinator.show({"process 2": {"steps": 7}})
    shown = [run.shown.get(timeout=SECONDS)]
    if shown[-1][1] != {"process 2": {"steps": 7}}:
        shown.append(run.shown.get(timeout=SECONDS))
    assert shown[-1] == ("h", {"process 2": {"steps": 7}})
    launcher.coordinator.stop()
    assert run.shown.get(timeout=SECONDS) == ("h", {})


def test_what_is_told_before_there_is_a_connection_is_told_then(
    cluster: Callable[..., Cluster], launch: Launch
) -> None:
    run = cluster(2)
    members = run.train(2)
    launcher = launch(run.address)
    launcher.coordinator.ended(Ended(101, "was ended by SIGSEGV"))
    assert expect(members[1], Stop).reason.startswith("worker 0 (host h, pid 101) was ended by SIGSEGV")


def test_an_exception_of_a_program_ends_the_run(cluster: Callable[..., Cluster], launch: Launch) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    members = run.train(2)
    launcher.coordinator.ended(Ended(102, "failed with exit code 1", "process 3 failed with exit code 1"))
    order = expect(members[0], End)
    assert order.code == exits.FAILED
    assert order.reason == "worker 1 (host h, pid 102) failed: process 3 failed with exit code 1"
    for member in members:
        member.close()
    assert run.server.wait(SECONDS) == launcher.coordinator.wait(SECONDS) == exits.FAILED
    assert launcher.lines.empty()


@pytest.mark.parametrize("joined", [0, 1])
def test_a_program_that_fails_before_it_has_joined_ends_the_run(
    cluster: Callable[..., Cluster], launch: Launch, joined: int
) -> None:
    run = cluster(2)
    members = [run.join() for _ in range(joined)]
    launcher = launch(run.address)
    launcher.coordinator.ended(Ended(999, "failed", "process 3 failed with exit code 1"))
    for member in members:
        assert expect(member, End).code == exits.FAILED
        member.close()
    assert run.server.wait(SECONDS) == launcher.coordinator.wait(SECONDS) == exits.FAILED
    reason = "a process failed before it had joined: process 3 failed with exit code 1"
    assert run.lines.get(timeout=SECONDS) == f"The run ends with exit code 1: {reason}."


def test_the_launcher_of_a_member_that_is_taken_for_dead_kills_it(
    cluster: Callable[..., Cluster], launch: Launch
) -> None:
    """One that is silent, of two machines: the other launcher has nothing to kill."""
    run = cluster(2, limits=Limits(suspect=0.1, silent=0.6))
    launcher, other = launch(run.address), launch(run.address, hello=LauncherHello("elsewhere", 1, 2))
    launcher.pids, other.pids = [102], [102]
    first, second = run.join(), run.join(beat_seconds=1000.0)
    form([first, second], 1)
    assert expect(first, Stop).reason.startswith("worker 1 (host h, pid 102) was silent for 0.6 s")
    assert launcher.killed.get(timeout=SECONDS) == 102
    assert other.killed.empty()


def test_a_frozen_process_of_another_machine_is_found(cluster: Callable[..., Cluster], launch: Launch) -> None:
    """Its launcher sees it: the coordinator could only wait for its silence."""
    run = cluster(1, limits=Limits(suspect=0.1, silent=100.0))
    launcher = launch(run.address, hello=LauncherHello("h", 1, 1), limits=Limits(suspect=0.1, silent=100.0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        hello = run.hello(pid=process.pid)
        frozen = join(run.address, hello, SECRET, Deadline(SECONDS), progress=Progress())
        run.members.append(frozen)
        expect(frozen, Form)
        frozen.formed(1)
        expect(frozen, Go)
        launcher.pids = [process.pid]
        process.send_signal(signal.SIGSTOP)
        assert launcher.killed.get(timeout=SECONDS) == process.pid
        number, how, _ = run.killed.get(timeout=SECONDS)
        assert (number, how) == (frozen.number, "is frozen (stopped by a signal)")
        process.kill()


def test_a_launcher_hears_how_the_run_stands(cluster: Callable[..., Cluster], launch: Launch) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    members = [run.join() for _ in range(2)]
    until(lambda: launcher.coordinator.status == Status(is_forming=True))
    form(members, 1)
    assert launcher.coordinator.status == Status(is_forming=True)  # they compile their first step
    step(*members)
    until(lambda: launcher.coordinator.status == Status())
    members[0].closed()
    until(lambda: launcher.coordinator.status == Status(is_closed=True))
    late = launch(run.address)
    until(lambda: late.coordinator.status == Status(is_closed=True))
    for member in members:
        member.finished()
    for member in members:
        assert expect(member, End).code == 0
        member.close()
    for each in (launcher, late):
        assert each.coordinator.wait(SECONDS) == 0
        assert each.coordinator.status == Status(is_closed=True, code=0)
        assert each.lines.empty()


def test_a_coordinator_that_is_gone_ends_the_part_of_its_launchers(
    cluster: Callable[..., Cluster], launch: Launch
) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    until(lambda: run.server._launchers._lines)  # which takes it in after the launcher has its line
    for _, line in list(run.server._launchers._lines.values()):
        line.connection.shutdown(socket.SHUT_RDWR)
    assert launcher.coordinator.wait(SECONDS) == exits.PEER_LOST
    assert launcher.coordinator.status.is_closed
    assert "The coordinator, which is the launcher of node 0, is gone" in launcher.lines.get(timeout=SECONDS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hello": LauncherHello("b", 1, 3)}, "The launcher on host b was started for 1 to 3 workers, that of node 0"),
        ({"hello": LauncherHello("b", 2, 2)}, "for 2 to 2 workers, that of node 0 for 1 to 2"),
        ({"hello": LauncherHello("b", 1, 2, VERSION + 1)}, "A process would join with messages of version"),
        ({"secret": b"another secret than theirs"}, "does not know the secret that it has"),
    ],
    ids=["most", "least", "version", "secret"],
)
def test_a_launcher_of_another_run_is_refused(
    cluster: Callable[..., Cluster], launch: Launch, changes: dict[str, Any], message: str
) -> None:
    launcher = launch(cluster(2).address, **changes)
    assert launcher.coordinator.wait(SECONDS) == exits.PEER_LOST
    assert message in launcher.lines.get(timeout=SECONDS)


def test_a_launcher_that_reaches_nobody_says_so(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    launcher = launch(address, limits=Limits(start=0.2))
    assert launcher.coordinator.wait(SECONDS) == exits.PEER_LOST
    assert "The launcher of host h did not reach the coordinator" in launcher.lines.get(timeout=SECONDS)


def test_one_that_is_stopped_says_nothing(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    launcher = launch(address)
    launcher.coordinator.stop()
    assert launcher.coordinator.wait(SECONDS) == exits.PEER_LOST
    assert launcher.lines.empty()


@pytest.mark.parametrize(
    "message",
    [{"pid": "one"}, {"tasks": 3}, {"tasks": {"process 2": 3}}, {"tasks": {}, "more": 1}],
    ids=str,
)
def test_a_launcher_that_sends_no_message_is_not_heard_any_more(
    message: dict[str, Any], cluster: Callable[..., Cluster], launch: Launch
) -> None:
    run = cluster(2)
    launcher = launch(run.address)
    until(lambda: launcher.coordinator._line)
    assert launcher.coordinator._line is not None
    connection, wire = launcher.coordinator._line
    connection.sendall(wire.seal(message))
    assert launcher.coordinator.wait(SECONDS) == exits.PEER_LOST
    members = run.train(2)  # the run goes on
    step(*members)


@pytest.mark.parametrize(
    "text",
    [
        '{"launches_on": "h"}',
        '{"launches_on": 1, "least": 1, "most": 2, "protocol": 1}',
        '{"launches_on": "h", "least": true, "most": 2, "protocol": 1}',
        '{"launches_on": "h", "least": 1, "most": 2, "protocol": 1, "more": 1}',
    ],
)
def test_what_is_no_hello_of_a_launcher(text: str) -> None:
    with pytest.raises(ValueError, match="not a hello of a launcher"):
        read_hello(text)


def test_hellos_are_told_apart() -> None:
    launcher, member = LauncherHello("h", 1, 2), JoinHello("h", os.getpid(), "h:1")
    assert read_hello(launcher.encode()) == launcher
    assert read_hello(member.encode()) == member


@pytest.mark.parametrize("fields", [None, {}, {"is_forming": 1, "is_closed": True, "code": 0}, {"is_forming": True}])
def test_what_is_no_status(fields: Any) -> None:
    with pytest.raises(ValueError, match="is no status"):
        Status.decode(fields)


def test_a_status_of_another_code_is_none() -> None:
    with pytest.raises(ValueError, match="is no status"):
        Status.decode({"is_forming": True, "is_closed": True, "code": "1"})
