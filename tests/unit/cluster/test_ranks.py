"""Ranks, from the variables that launchers set."""

from __future__ import annotations

import pytest

from stratagem.cluster.ranks import (
    HorovodClusterResolver,
    JAXClusterResolver,
    MPICHClusterResolver,
    OpenMPIClusterResolver,
    RankClusterResolver,
    TorchrunClusterResolver,
    TrainerClusterResolver,
)
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


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "head", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("resolver", "environ", "addresses", "rank"),
    [
        # A PyTorchJob, or variables set by hand: the port is the program's own.
        (TorchrunClusterResolver, TORCHRUN, ["head:29500", "rank-1:29500", "rank-2:29500"], 1),
        # torchrun has taken the port itself.
        (
            TorchrunClusterResolver,
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "1"},
            ["head:29501", "rank-1:29501", "rank-2:29501"],
            1,
        ),
        (
            TorchrunClusterResolver,
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "3"},
            ["localhost:29501", "localhost:29502", "localhost:29503"],
            1,
        ),
        (
            TorchrunClusterResolver,
            TORCHRUN | {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"},
            ["localhost:29500", "localhost:29501"],
            1,
        ),
        (
            MPICHClusterResolver,
            {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "2"},
            ["localhost:2222", "localhost:2223"],
            1,
        ),
        (
            HorovodClusterResolver,
            {"HOROVOD_SIZE": "1", "HOROVOD_RANK": "0", "HOROVOD_LOCAL_SIZE": "1"},
            ["localhost:2222"],
            0,
        ),
        (
            JAXClusterResolver,
            {
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": "0",
                "JOB_COMPLETION_INDEX": "1",
                "JAX_COORDINATOR_ADDRESS": "[::2]:9",
            },
            ["[::2]:9", "rank-1:9"],
            0,
        ),
    ],
)
def test_launchers(
    resolver: type[RankClusterResolver], environ: dict[str, str], addresses: list[str], rank: int
) -> None:
    found = resolver(environ=environ)
    assert (found.cluster_spec().job_tasks("worker"), found.task_type, found.task_id) == (addresses, "worker", rank)


@pytest.mark.parametrize(
    ("resolver", "environ"),
    [
        (MPICHClusterResolver, {"PMI_SIZE": "2", "PMI_RANK": "1"}),
        (HorovodClusterResolver, {"HOROVOD_SIZE": "4", "HOROVOD_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}),
        (TorchrunClusterResolver, {"RANK": "1", "WORLD_SIZE": "2"}),
        (JAXClusterResolver, {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}),
    ],
)
def test_who_does_not_say_where_rank_0_is_gets_an_error(
    resolver: type[RankClusterResolver], environ: dict[str, str]
) -> None:
    with pytest.raises(ClusterError, match=rf"does not say where rank 0 runs.*\n.*{resolver.__name__}\(coordinator="):
        resolver(environ=dict(environ)).cluster_spec()
    assert resolver(coordinator="head", environ=dict(environ)).cluster_spec().job_tasks("worker")[0] == "head:2222"


def test_processes_of_one_machine_share_its_gpus() -> None:
    shares = []
    for rank in range(2):
        environ = {**MPI, "CUDA_VISIBLE_DEVICES": "1,2,5,7", "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
        for _ in range(2):  # asked again, a process keeps its share
            OpenMPIClusterResolver(environ=environ).cluster_spec()
        shares.append(environ["CUDA_VISIBLE_DEVICES"])
    assert shares == ["1,2", "5,7"]


@pytest.mark.parametrize("gpus", ["0", "", "-1"])
def test_gpus_that_are_too_few_to_share_stay_as_they_are(gpus: str) -> None:
    environ = {**MPI, "CUDA_VISIBLE_DEVICES": gpus, "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    OpenMPIClusterResolver(environ=environ).cluster_spec()
    assert environ["CUDA_VISIBLE_DEVICES"] == gpus


TRAIN_JOB = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "auto", "JOB_COMPLETION_INDEX": "1"}


def test_a_train_job_with_the_runtime_of_pytorch() -> None:
    environ = TRAIN_JOB | {"PET_MASTER_ADDR": "train-node-0-0.train", "PET_MASTER_PORT": "29500"}
    resolver = TrainerClusterResolver(environ=environ)
    assert resolver.cluster_spec().job_tasks("worker") == ["train-node-0-0.train:29500", "rank-1:29500"]
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TRAIN_JOB, True),
        (TRAIN_JOB | {"PET_NNODES": "1"}, False),
        (TRAIN_JOB | {"PET_NNODES": "1:4"}, False),
        ({"PET_NNODES": "2"}, False),
        ({}, False),
    ],
)
def test_which_pods_are_of_a_train_job(environ: dict[str, str], expected: bool) -> None:
    assert TrainerClusterResolver.is_here(environ) is expected


def test_the_port_of_a_job_counts_where_its_launcher_says_none() -> None:
    environ = MPI | {"STRATAGEM_PORT": "20007"}
    assert OpenMPIClusterResolver(environ=environ).cluster_spec().job_tasks("worker") == [
        "localhost:20007",
        "localhost:20008",
    ]
    assert OpenMPIClusterResolver(port=5, environ=environ).cluster_spec().job_tasks("worker")[0] == "localhost:5"
    told = TRAIN_JOB | {"PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "29500", "STRATAGEM_PORT": "20007"}
    assert TrainerClusterResolver(environ=told).cluster_spec().job_tasks("worker")[0] == "a:29500"
