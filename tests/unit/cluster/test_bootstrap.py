from __future__ import annotations

import multiprocessing

import pytest

from stratagem.cluster import bootstrap
from stratagem.cluster.bootstrap import join
from stratagem.cluster.hello import Peer
from stratagem.cluster.resolver import SimpleClusterResolver
from stratagem.cluster.spec import ClusterSpec, JobTasks, Task
from stratagem.core.errors import ClusterError, InputError, UsageError


@pytest.fixture(autouse=True)
def not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_joined", None)
    monkeypatch.delenv("STRATAGEM_STARTUP_TIMEOUT", raising=False)


def resolver(
    cluster: dict[str, JobTasks], task_type: str | None = None, task_id: int | None = None
) -> SimpleClusterResolver:
    return SimpleClusterResolver(ClusterSpec(cluster), task_type=task_type, task_id=task_id)


@pytest.mark.parametrize(
    ("own", "task"),
    [
        (resolver({}), Task("worker", 0)),
        (resolver({"worker": ["a"]}, "worker", 0), Task("worker", 0)),
        (resolver({"chief": ["a"]}, "chief", 0), Task("chief", 0)),
        (resolver({"chief": ["a"], "worker": ["b"]}, "evaluator", 0), Task("evaluator", 0)),
        (resolver({"worker": ["a", "b"], "evaluator": ["c"]}, "evaluator", 0), Task("evaluator", 0)),
    ],
)
def test_a_task_that_trains_alone_joins_nothing(own: SimpleClusterResolver, task: Task) -> None:
    membership = join(own)
    assert membership.task == task
    assert membership.cluster == own.cluster_spec()
    assert (membership.process_index, membership.process_count) == (0, 1)
    assert membership.is_chief
    assert membership.peers is None


def test_a_resolver_must_know_which_task_it_is() -> None:
    with pytest.raises(ClusterError, match="its task_type is 'worker' and its task_id is None"):
        join(resolver({"worker": ["a", "b"]}, "worker"))
    with pytest.raises(ClusterError, match="Job 'worker' has no task 2"):
        join(resolver({"worker": ["a", "b"]}, "worker", 2))


def test_a_parameter_server_does_not_train() -> None:
    with pytest.raises(UsageError, match="This process is ps 0, a parameter server"):
        join(resolver({"worker": ["a", "b"], "ps": ["c"]}, "ps", 0))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_timeout_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(InputError, match="timeout_seconds is"):
        join(resolver({}), timeout_seconds=seconds)


@pytest.mark.parametrize("text", ["soon", "0", "-3", "nan"])
def test_the_timeout_of_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STRATAGEM_STARTUP_TIMEOUT", text)
    with pytest.raises(InputError, match=f"STRATAGEM_STARTUP_TIMEOUT is '{text}'"):
        join(resolver({}))


@pytest.mark.parametrize(
    ("environ", "direct"),
    [
        ({}, None),
        ({"http_proxy": ""}, None),
        ({"http_proxy": "p"}, "host"),
        ({"https_proxy": "p", "no_proxy": "a,b"}, "a,b,host"),
        ({"grpc_proxy": "p", "no_proxy": "a", "no_grpc_proxy": "c"}, "c,host"),
        ({"http_proxy": "p", "no_proxy": "a,host"}, None),
    ],
)
def test_the_coordinator_is_reached_without_a_proxy(environ: dict[str, str], direct: str | None) -> None:
    bootstrap._reach_without_proxy("host", environ)
    assert environ.get("no_grpc_proxy") == direct


@pytest.mark.parametrize(
    ("own", "other", "warned"),
    [("localhost", "node2", True), ("localhost", "localhost", False), ("no-such-host.invalid", "node2", False)],
)
def test_a_host_whose_name_others_cannot_use_is_named(
    caplog: pytest.LogCaptureFixture, own: str, other: str, warned: bool
) -> None:
    peers = [Peer(Task("worker", 0), own, 1), Peer(Task("worker", 1), other, 2)]
    bootstrap._warn_of_loopback_name(peers, peers[0])
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warned
    assert ("worker 0 (host localhost, pid 1)" in caplog.text) == warned


def test_a_process_that_imports_the_program_to_read_data_joins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # As multiprocessing marks a spawned process while it imports the main module; test_inputs.py has a real one.
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(UsageError, match=r'a second time as the same task(.|\n)*if __name__ == "__main__"'):
        join(resolver({"worker": ["a", "b"]}, "worker", 0))


def test_who_asks_for_the_others_waits_until_its_place_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_awaits_place", None)
    waited: list[bool] = []
    place = bootstrap.Membership(Task("worker", 1), ClusterSpec({}), 1, 2, is_chief=False, peers=None)
    bootstrap.take_place(place, lambda: waited.append(True))
    assert waited == []
    assert bootstrap.current_peers() is None
    assert waited == [True]
