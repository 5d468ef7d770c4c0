"""Hosts of a SageMaker job."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratagem.cluster.sagemaker import SageMakerClusterResolver
from stratagem.core.errors import ClusterError

SAGEMAKER = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}


def test_sagemaker() -> None:
    resolver = SageMakerClusterResolver(port=5, environ=SAGEMAKER)
    assert resolver.cluster_spec().as_dict() == {"worker": ["algo-1:5", "algo-2:5"]}
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("worker", 1, "algo-2:5")
    assert SageMakerClusterResolver(rpc_layer="grpc", environ=SAGEMAKER).master() == "grpc://algo-2:2223"
    assert SageMakerClusterResolver(task_id=0, environ=SAGEMAKER).task_id == 0
    with pytest.raises(ClusterError, match="SM_CURRENT_HOST is 'other'"):
        _ = SageMakerClusterResolver(environ=SAGEMAKER | {"SM_CURRENT_HOST": "other"}).task_id
    with pytest.raises(ClusterError, match="SM_HOSTS is 'algo-1'"):
        SageMakerClusterResolver(environ=SAGEMAKER | {"SM_HOSTS": "algo-1"}).cluster_spec()


@pytest.mark.parametrize("hosts", ["", '["algo-1"]'])
def test_without_a_current_host_one_host_or_none_is_no_cluster(hosts: str) -> None:
    resolver = SageMakerClusterResolver(environ={"SM_HOSTS": hosts, "SM_CURRENT_HOST": ""})
    assert not resolver.cluster_spec()
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    with pytest.raises(ClusterError, match="SM_CURRENT_HOST is ''"):  # each host would train alone
        SageMakerClusterResolver(environ=SAGEMAKER | {"SM_CURRENT_HOST": ""}).cluster_spec()


def test_where_no_toolkit_sets_variables_the_file_of_sagemaker_names_the_hosts(tmp_path: Path) -> None:
    file = tmp_path / "resourceconfig.json"
    file.write_text('{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}')
    resolver = SageMakerClusterResolver(environ={"STRATAGEM_PORT": "4000"}, resources=file)
    assert resolver.cluster_spec().as_dict() == {"worker": ["algo-1:4000", "algo-2:4000"]}
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    toolkit = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
    assert SageMakerClusterResolver(environ=toolkit, resources=file).cluster_spec().as_dict() == {
        "worker": ["algo-1:2223"]
    }


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"hosts": "algo-1"}'])
def test_a_file_that_names_no_hosts_is_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "resourceconfig.json"
    file.write_text(text)
    with pytest.raises(ClusterError, match="SM_HOSTS is None"):
        SageMakerClusterResolver(environ={}, resources=file).cluster_spec()
