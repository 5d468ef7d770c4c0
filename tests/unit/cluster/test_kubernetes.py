from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from stratagem.cluster.kubernetes import KubernetesClusterResolver, KubernetesExecutableLocation
from stratagem.core.errors import ClusterError, StartupError


def pod(name: str, ip: str | None, phase: str = "Running") -> Any:
    return SimpleNamespace(
        metadata=SimpleNamespace(name=name), status=SimpleNamespace(pod_ip=ip, host_ip="192.0.2.1", phase=phase)
    )


class FakeClient:
    def __init__(self, **pods: list[Any]) -> None:
        self.pods = pods

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        return SimpleNamespace(items=self.pods.get(label_selector.removeprefix("job-name="), []))


INDEXED = [pod("train-10-x7k2p", "10.0.0.10"), pod("train-2-aaaaa", "10.0.0.2"), pod("train-1-zzzzz", "fd00::1")]


def test_pods_are_addressed_by_pod_ip_in_the_order_of_their_numbers() -> None:
    resolver = KubernetesClusterResolver(override_client=FakeClient(tensorflow=INDEXED), hostname="train-2")
    assert resolver.cluster_spec().as_dict() == {"worker": ["[fd00::1]:8470", "10.0.0.2:8470", "10.0.0.10:8470"]}
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("worker", 1, "grpc://10.0.0.2:8470")


def test_jobs_by_label() -> None:
    client = FakeClient(w=[pod("w-0", "10.0.0.1")], v=[pod("v-0", "10.0.0.2")], p=[pod("p-0", "10.0.0.3")])
    mapping = {"worker": ["job-name=w", "job-name=v"], "ps": ["job-name=p"]}
    resolver = KubernetesClusterResolver(mapping, 99, None, client, hostname="p-0")
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:99", "10.0.0.2:99"], "ps": ["10.0.0.3:99"]}
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("ps", 0, "10.0.0.3:99")


@pytest.mark.parametrize("hostname", ["", "laptop", "train"])
def test_a_host_that_is_no_single_pod_is_no_task_until_told(hostname: str) -> None:
    resolver = KubernetesClusterResolver(override_client=FakeClient(tensorflow=INDEXED), hostname=hostname)
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    resolver.task_type, resolver.task_id = "worker", 0
    assert resolver.master() == "grpc://[fd00::1]:8470"


def test_pods_that_do_not_run_are_named() -> None:
    client = FakeClient(tensorflow=[pod("a-0", "10.0.0.1"), pod("a-1", None, "Pending")])
    with pytest.raises(StartupError, match=r'Pod "a-1" is not running; phase: "Pending"\. It is of job .worker'):
        KubernetesClusterResolver(override_client=client).cluster_spec()


@pytest.mark.parametrize("status", [SimpleNamespace, Mock])
def test_pods_of_a_client_that_knows_machines_alone_have_their_machines_addresses(status: Any) -> None:
    found = pod("a-0", None)
    found.status = status(phase="Running", host_ip="192.0.2.7")
    resolver = KubernetesClusterResolver(override_client=FakeClient(tensorflow=[found]), hostname="a-0")
    assert resolver.cluster_spec().as_dict() == {"worker": ["192.0.2.7:8470"]}


@pytest.mark.parametrize("missing", [None, ""])
def test_a_machines_address_never_stands_for_a_pods_that_is_not_there_yet(missing: str | None) -> None:
    client = FakeClient(tensorflow=[pod("a-0", missing)])
    with pytest.raises(StartupError, match=r'Pod "a-0" is not running; phase: "Running"'):
        KubernetesClusterResolver(override_client=client).cluster_spec()


def test_labels_without_pods_are_named() -> None:
    with pytest.raises(ClusterError, match=r"No pod has the labels \['job-name=tensorflow'\] of job 'worker'"):
        KubernetesClusterResolver(override_client=FakeClient()).cluster_spec()


@pytest.mark.parametrize(
    ("location", "loader"),
    [
        (KubernetesExecutableLocation.WITHIN_CLUSTER, "load_incluster_config"),
        (KubernetesExecutableLocation.OFF_CLUSTER, "load_kube_config"),
    ],
)
def test_the_location_chooses_the_credentials(
    monkeypatch: pytest.MonkeyPatch, location: KubernetesExecutableLocation, loader: str
) -> None:
    loaded: list[str] = []
    config = SimpleNamespace(
        load_incluster_config=lambda: loaded.append("load_incluster_config"),
        load_kube_config=lambda: loaded.append("load_kube_config"),
    )
    client = SimpleNamespace(CoreV1Api=lambda: FakeClient(tensorflow=INDEXED))
    monkeypatch.setitem(sys.modules, "kubernetes", SimpleNamespace(config=config, client=client))  # type: ignore[arg-type]
    resolver = KubernetesClusterResolver(executable_location=location, hostname="train-1")
    assert resolver.cluster_spec().num_tasks("worker") == 3
    assert resolver.task_id == (0 if location is KubernetesExecutableLocation.WITHIN_CLUSTER else None)
    assert loaded == [loader]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="pip install kubernetes"):
        KubernetesClusterResolver().cluster_spec()
