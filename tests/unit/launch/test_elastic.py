"""`stratagem run --spares` and `--elastic`: what it refuses, and what its processes are started with."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from stratagem.core.errors import ClusterError, StartupError
from stratagem.elastic.remote import RemoteCoordinator
from stratagem.elastic.server import Server
from stratagem.launch.elastic import ElasticRun
from stratagem.launch.machine import Machine
from stratagem.launch.plan import Request


def made(**request: Any) -> ElasticRun:
    machine = Machine((0, 1), 2)
    command = ("train.py",)
    return ElasticRun(
        Request(command, **{"workers": 2, **request}), 2, 3, machine, Path(), grace_seconds=1.0, variables={}
    )


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
