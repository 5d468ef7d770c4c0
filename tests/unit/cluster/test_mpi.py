"""Ranks of Open MPI, from the variables that `mpirun` sets."""

from __future__ import annotations

import pytest

from stratagem.cluster.mpi import OpenMPIClusterResolver
from stratagem.core.errors import ClusterError

MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
HNP4 = "1531576320.0;tcp://127.0.0.1,10.96.0.1,10.148.0.1:34911"
HNP6 = "1314521088.0;tcp6://[fe80::b9b:ac5d,2620:10d:c083:150e::3000:2]:43370"


@pytest.mark.parametrize(
    ("more", "arguments", "first"),
    [
        ({"OMPI_MCA_orte_hnp_uri": HNP4}, {}, "10.96.0.1:2222"),
        ({"OMPI_MCA_orte_hnp_uri": HNP6}, {}, "[2620:10d:c083:150e::3000:2]:2222"),
        ({}, {"coordinator": "head", "port": 7}, "head:7"),
    ],
)
def test_mpi_over_machines(more: dict[str, str], arguments: dict[str, object], first: str) -> None:
    environ = MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"} | more
    resolver = OpenMPIClusterResolver(environ=environ, **arguments)  # type: ignore[arg-type]
    port = first.rpartition(":")[2]
    assert resolver.cluster_spec().job_tasks("worker") == [first, f"mpi-rank-1:{port}"]


@pytest.mark.parametrize("uri", [None, "", "1.0;tcp://127.0.0.1:1", "nonsense"])
def test_mpi_over_machines_must_know_where_rank_0_is(uri: str | None) -> None:
    environ = MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"} | ({} if uri is None else {"OMPI_MCA_orte_hnp_uri": uri})
    with pytest.raises(ClusterError, match="does not say where rank 0 runs"):
        OpenMPIClusterResolver(environ=environ).cluster_spec()


def test_all_ranks_of_one_machine_have_ports_of_their_own() -> None:
    resolver = OpenMPIClusterResolver(port=7, environ=MPI)
    assert resolver.cluster_spec().as_dict() == {"worker": ["localhost:7", "localhost:8"]}
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("worker", 1, "localhost:8")
    resolver.task_id = 0
    assert resolver.task_id == 0
