from __future__ import annotations

import json

import pytest

from stratagem.cluster import tf_config
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core.errors import ClusterError

TUTORIAL = {"cluster": {"worker": ["localhost:12345", "localhost:23456"]}, "task": {"type": "worker", "index": 0}}
CLUSTER = TUTORIAL["cluster"]


def resolver(config: object) -> TFConfigClusterResolver:
    text = config if isinstance(config, str) else json.dumps(config)
    return TFConfigClusterResolver(environ={"TF_CONFIG": text})


@pytest.mark.parametrize(
    ("config", "cluster", "task", "master"),
    [
        (TUTORIAL, CLUSTER, ("worker", 0), "localhost:12345"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": "1"}}, CLUSTER, ("worker", 1), "localhost:23456"),
        ({"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}}, CLUSTER, ("evaluator", 0), ""),
        (
            {"cluster": {"worker": ["192.168.1.100", "192.168.1.101"]}, "task": {"type": "worker", "index": 1}},
            {"worker": ["192.168.1.100:2222", "192.168.1.101:2222"]},
            ("worker", 1),
            "192.168.1.101:2222",
        ),
        (
            {"cluster": {"chief": ["a:1"], "worker": {"1": "b:1"}}, "task": {"type": "chief", "index": 0, "cloud": 1}},
            {"chief": ["a:1"], "worker": {1: "b:1"}},
            ("chief", 0),
            "a:1",
        ),
        ({"cluster": CLUSTER, "task": TUTORIAL["task"], "rpc_layer": "grpc"}, CLUSTER, ("worker", 0), None),
        (TUTORIAL | {"session_master": "master:1"}, CLUSTER, ("worker", 0), "master:1"),
        ({"cluster": {"worker": ["a:1"]}}, {"worker": ["a:1"]}, (None, None), ""),
        ({"task": {"type": "worker", "index": 0}}, {}, ("worker", 0), ""),
        ({}, {}, (None, None), ""),
        ("", {}, (None, None), ""),
        (" \n", {}, (None, None), ""),
    ],
)
def test_tf_configs(
    config: object, cluster: dict[str, object], task: tuple[str | None, int | None], master: str | None
) -> None:
    own = resolver(config)
    assert own.cluster_spec().as_dict() == cluster
    assert (own.task_type, own.task_id) == task
    assert own.master() == ("grpc://localhost:12345" if master is None else master)


def test_no_tf_config_is_an_empty_cluster() -> None:
    own = TFConfigClusterResolver(environ={})
    assert not own.cluster_spec()
    assert (own.task_type, own.task_id, own.master(), own.rpc_layer) == (None, None, "", None)


def test_arguments_override_tf_config() -> None:
    environ = {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})}
    own = TFConfigClusterResolver(task_id=0, rpc_layer="http", environment="google", environ=environ)
    assert (own.task_type, own.task_id, own.environment) == ("worker", 0, "google")
    assert own.master() == "http://localhost:12345"
    own.task_id = 1
    assert own.master() == "http://localhost:23456"


def test_tf_config_is_read_at_each_call() -> None:
    environ = {"TF_CONFIG": json.dumps(TUTORIAL)}
    own = TFConfigClusterResolver(environ=environ)
    assert own.cluster_spec()
    environ["TF_CONFIG"] = ""
    assert not own.cluster_spec()


def test_tf_config_is_parsed_again_only_when_it_or_an_override_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(tf_config.json, "loads", lambda text, loads=json.loads: (texts.append(text), loads(text))[1])
    own = resolver(TUTORIAL)
    assert (own.cluster_spec().num_tasks("worker"), own.task_type, own.task_id, own.rpc_layer) == (2, "worker", 0, None)
    assert len(texts) == 1
    own.task_id = 1
    assert (own.task_id, own.master()) == (1, "localhost:23456")
    assert len(texts) == 2


SERVERS = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}


def test_who_hands_out_work_to_parameter_servers_needs_no_task() -> None:
    own = resolver({"cluster": SERVERS})
    assert (own.task_type, own.task_id, own.cluster_spec().as_dict()) == (None, None, SERVERS)


def with_task(**task: object) -> dict[str, object]:
    return {"cluster": CLUSTER, "task": task}


@pytest.mark.parametrize(
    ("config", "found", "marked"),
    [
        ("{'cluster': {}}", "TF_CONFIG is not JSON", "^ Expecting property name"),
        ('{"cluster": ', "TF_CONFIG is not JSON", "^ Expecting value"),
        ([1], "TF_CONFIG is not a JSON object", "[   <-- here"),
        ("7", "TF_CONFIG is not a JSON object", "7   <-- here"),
        ({"cluster": CLUSTER}, "has a cluster and no task type", "{   <-- here"),
        ({"cluster": {"worker": ["a:1"]}, "tasks": {}}, "has a cluster and no task type", "{   <-- here"),
        ({"cluster": CLUSTER, "tasks": {}}, "has a cluster and no task type", "{   <-- here"),
        ({"cluster": SERVERS | {"chief": ["d:1"]}}, "has a cluster and no task type", "{   <-- here"),
        ({"cluster": SERVERS, "tasks": {}}, "has a cluster and no task type", "{   <-- here"),
        ({"cluster": CLUSTER, "task": ["worker", 0]}, "The task is ['worker', 0]", '"task": [   <-- here'),
        (with_task(type="worker"), "no task index", '"task": {   <-- here'),
        (with_task(index=0), "no task type", '"task": {   <-- here'),
        (with_task(type="boss", index=0), "'boss' is not a type of task", '"type": "boss",   <-- here'),
        (with_task(type="master", index=0), '"master" is called "chief"', '"type": "master",   <-- here'),
        (with_task(type="ps", index=0), "The cluster has no job 'ps'; it has worker", '"type": "ps",   <-- here'),
        (with_task(type="worker", index=2), "no task 2; it has task 0, 1", '"index": 2   <-- here'),
        (with_task(type="worker", index=-1), "index of the task is -1", '"index": -1   <-- here'),
        (with_task(type="worker", index="one"), "index of the task is 'one'", '"index": "one"   <-- here'),
        (with_task(type="worker", index=1.0), "index of the task is 1.0", '"index": 1.0   <-- here'),
        (with_task(type="worker", index=True), "index of the task is True", '"index": true   <-- here'),
        (with_task(type="worker", index=None), "index of the task is None", '"index": null   <-- here'),
        (with_task(type="evaluator", index=1), "This task is evaluator 1", '"index": 1   <-- here'),
        ({"task": {"type": "worker", "index": 1}}, "This task is worker 1", '"index": 1   <-- here'),
        ({"cluster": ["a"]}, "The cluster is ['a']", '"cluster": [   <-- here'),
        ({"cluster": {"worker": "a:1"}}, "Job 'worker' is 'a:1'", '"worker": "a:1"   <-- here'),
        ({"cluster": {"worker": []}}, "Job 'worker' has no tasks", '"worker": []   <-- here'),
        ({"cluster": {"worker": ["a:1", "a:1"]}}, "the same address, a:1", '    "a:1"   <-- here'),
        ({"cluster": {"worker": ["a:1", "b:x"]}}, "'b:x' is not an address", '"b:x"   <-- here'),
        ({"cluster": {"worker": {"1": 5}}}, "5 is not an address", '"1": 5   <-- here'),
        ({"cluster": {"chief": ["a:1", "b:1"]}}, "Job 'chief' has 2 tasks", '"chief": [   <-- here'),
        ({"cluster": {"boss": ["a:1"]}}, "'boss' is not a type", '"boss": [   <-- here'),
    ],
)
def test_wrong_tf_configs_are_shown_with_the_fault_marked(config: object, found: str, marked: str) -> None:
    own = resolver(config)
    with pytest.raises(ClusterError) as error:
        own.cluster_spec()
    message = str(error.value)
    assert found in message
    assert marked in message
    assert message.count("<-- here") <= 1
    assert "What to do: " in message
    with pytest.raises(ClusterError):
        _ = own.task_id


def test_of_a_long_cluster_only_the_neighbourhood_is_shown() -> None:
    addresses = [f"host{index}:1" for index in range(500)]
    addresses[300] = "host299:1"
    with pytest.raises(ClusterError) as error:
        resolver({"cluster": {"worker": addresses}}).cluster_spec()
    shown = str(error.value)
    assert '"host299:1",   <-- here' in shown
    assert "worker 299 and worker 300 have the same address" in shown
    assert len(shown.splitlines()) < 30
