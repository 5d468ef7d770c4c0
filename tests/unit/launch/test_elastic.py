"""`stratagem run --spares` and `--elastic`: what it refuses, and what its processes are started with."""

from __future__ import annotations

import socket
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.clock import HandClock

from stratagem.core import exits
from stratagem.core.clock import Clock
from stratagem.core.errors import ClusterError, StartupError
from stratagem.elastic.launchers import Status
from stratagem.elastic.remote import RemoteCoordinator
from stratagem.elastic.server import Server
from stratagem.launch.compiled import CompiledPrograms
from stratagem.launch.elastic import KNOWN_SECONDS, ElasticRun
from stratagem.launch.machine import Machine
from stratagem.launch.plan import Request


def made(programs: CompiledPrograms | None = None, clock: Clock | None = None, **request: Any) -> ElasticRun:
    asked = Request(("train.py",), **{"workers": 2, **request})
    own: dict[str, Any] = {"variables": {}, "programs": programs, "clock": clock or Clock()}
    return ElasticRun(asked, 2, 3, Machine((0, 1), 2), Path(), grace_seconds=1.0, **own)


@pytest.mark.parametrize(
    "request_",
    [
        {"ps": 1},
        {"evaluator": True},
        {"devices_per_worker": 2},
    ],
    ids=str,
)
def test_what_a_spare_cannot_stand_for_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(
        ClusterError, match="--spares or --elastic was given with --ps, --evaluator or --devices-per-worker"
    ):
        made(**request_)


def test_processes_of_all_nodes_have_names_of_their_own() -> None:
    nodes = [made(nodes=2, node_rank=rank, coordinator="10.0.0.5:12345") for rank in range(2)]
    names = [plan.name for node in nodes for plan in node._plans]
    assert names == [f"process {number}" for number in range(10)]


def test_a_coordinator_listens_where_the_other_nodes_come_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    run = made(nodes=2, coordinator=address)
    coordinator = run._made_coordinator()
    assert isinstance(coordinator, Server)
    assert run._address == address
    rules = coordinator.state.rules
    assert (rules.wanted, rules.most, rules.options.min_workers) == (4, 4, 2)
    with pytest.raises(StartupError, match=r"The launcher of node 0 cannot listen on port \d+ .* is in use"):
        made(nodes=2, coordinator=address)._made_coordinator()
    coordinator.start()
    coordinator.stop()


def test_another_node_goes_to_the_coordinator() -> None:
    run = made(nodes=2, node_rank=1, coordinator="10.0.0.5:12345")
    coordinator = run._made_coordinator()
    assert isinstance(coordinator, RemoteCoordinator)
    assert run._address == "10.0.0.5:12345"
    assert (coordinator._hello.least, coordinator._hello.most) == (2, 4)


def test_each_process_has_a_name_of_its_own_and_spares_the_cores_of_workers() -> None:
    plans = made()._plans
    assert [plan.name for plan in plans] == [f"process {number}" for number in range(5)]
    assert [plan.cores for plan in plans] == [(0,), (1,), (0,), (1,), (0,)]
    assert len({plan.environment["STRATAGEM_SECRET"] for plan in plans}) == 1


def test_a_lost_process_is_replaced_when_the_others_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once the coordinator may not know of it, so that the run would seem to go on: it would take a spare's core."""
    clock = HandClock()
    run, started = made(clock=clock), []
    monkeypatch.setattr(run, "_start", lambda plan, is_spare: started.append((plan.name, is_spare)))
    run._guard = SimpleNamespace(ended=lambda pid: None)
    run._coordinator = SimpleNamespace(status=Status(), ended=lambda ended: None)
    process = SimpleNamespace(returncode=-9)
    run._running[7] = SimpleNamespace(name="process 1", process=process, plan=run._plans[1])  # pyright: ignore[reportArgumentType]
    run._ended(7, 1.0)
    run._replace_lost()
    clock.wait(KNOWN_SECONDS)
    run._coordinator.status = Status(is_forming=True)  # pyright: ignore[reportAttributeAccessIssue]
    run._replace_lost()
    assert started == []
    run._coordinator.status = Status()  # pyright: ignore[reportAttributeAccessIssue]
    run._replace_lost()
    run._replace_lost()
    assert started == [("process 1", True)]


def test_a_process_that_failed_before_it_trained_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others train on: it is no failure of the run, and another start would fail too."""
    run, started, told = made(clock=HandClock()), [], []
    monkeypatch.setattr(run, "_start", lambda plan, is_spare: started.append(plan.name))
    run._guard = SimpleNamespace(ended=lambda pid: None)
    run._coordinator = SimpleNamespace(status=Status(), ended=told.append)
    process = SimpleNamespace(returncode=exits.FAILED_APART)
    run._running[7] = SimpleNamespace(name="process 2", process=process, plan=run._plans[2])  # pyright: ignore[reportArgumentType]
    run._ended(7, 1.0)
    run._replace_lost()
    assert started == []
    assert [(each.pid, each.error) for each in told] == [(7, "")]
    assert run._code(0) == 0


def test_compiled_programs_last_from_one_run_to_the_next(tmp_path: Path) -> None:
    programs = CompiledPrograms(tmp_path / "compiled")
    with made(programs)._folder_of_programs() as folder:
        (folder / "jit_step-1-cache").write_bytes(zlib.compress(b"machine code"))
        (folder / "jit_step-2-cache").write_bytes(b"half")  # of a process that was killed
    with made(programs)._folder_of_programs() as folder:
        assert [file.name for file in folder.iterdir()] == ["jit_step-1-cache"]
    with made()._folder_of_programs() as folder:  # those of this run alone
        assert list(folder.iterdir()) == []
    assert not folder.exists()
