from __future__ import annotations

import json

import pytest

from stratagem.cluster.detect import detect
from stratagem.cluster.ranks import (
    HorovodClusterResolver,
    JAXClusterResolver,
    MPICHClusterResolver,
    OpenMPIClusterResolver,
    TorchrunClusterResolver,
)
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver
from stratagem.cluster.sagemaker import SageMakerClusterResolver
from stratagem.cluster.slurm import SlurmClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core.errors import ClusterError

TF = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})}
SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
SLURM_BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
SAGEMAKER = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}
MPICH = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"}
HOROVOD = {"HOROVOD_SIZE": "2", "HOROVOD_RANK": "1", "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_LOCAL_RANK": "1"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}
JAX = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "a:1"}
ALONE_SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
ALONE_MPI = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}
ALONE_SAGEMAKER = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}


@pytest.mark.parametrize(
    ("environ", "kind", "tasks", "task_id"),
    [
        ({}, SimpleClusterResolver, 0, None),
        ({"TF_CONFIG": ""}, SimpleClusterResolver, 0, None),
        (TF, TFConfigClusterResolver, 2, 0),
        (TF | SLURM | MPI | SAGEMAKER, TFConfigClusterResolver, 2, 0),
        ({"TF_CONFIG": "{}"} | SLURM, TFConfigClusterResolver, 0, None),
        (SLURM, SlurmClusterResolver, 2, 1),
        (SLURM_BATCH, SimpleClusterResolver, 0, None),
        (ALONE_SLURM, SimpleClusterResolver, 0, None),
        (MPI, OpenMPIClusterResolver, 2, 1),
        (MPI | SLURM | {"SLURM_PROCID": "0"}, OpenMPIClusterResolver, 2, 1),
        (ALONE_MPI, SimpleClusterResolver, 0, None),
        (MPICH, MPICHClusterResolver, 2, 1),
        (MPICH | SLURM | {"SLURM_PROCID": "0"}, MPICHClusterResolver, 2, 1),
        (SLURM | {"PMI_SIZE": "2", "PMI_RANK": "1"}, SlurmClusterResolver, 2, 1),
        (HOROVOD, HorovodClusterResolver, 2, 1),
        (TORCHRUN, TorchrunClusterResolver, 2, 1),
        (TORCHRUN | SLURM | {"SLURM_PROCID": "0"}, TorchrunClusterResolver, 2, 1),
        (TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}, SimpleClusterResolver, 0, None),
        ({"WORLD_SIZE": "2"}, SimpleClusterResolver, 0, None),
        (JAX, JAXClusterResolver, 2, 1),
        ({**JAX, "JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, SimpleClusterResolver, 0, None),
        (SAGEMAKER, SageMakerClusterResolver, 2, 1),
        (ALONE_SAGEMAKER, SimpleClusterResolver, 0, None),
        (SAGEMAKER | ALONE_MPI, SageMakerClusterResolver, 2, 1),
    ],
)
def test_the_place_chooses_the_resolver(
    environ: dict[str, str], kind: type[ClusterResolver], tasks: int, task_id: int | None
) -> None:
    resolver = detect(environ=dict(environ))
    assert type(resolver) is kind
    assert len(resolver.cluster_spec().tasks) == tasks
    assert resolver.task_id == task_id


def test_what_the_program_says_beats_everything() -> None:
    own = SimpleClusterResolver(ClusterSpec({"worker": ["c:1"]}))
    assert detect(own, dict(TF)) is own


def test_a_pod_of_an_indexed_job_is_not_alone() -> None:
    with pytest.raises(ClusterError, match=r"(?s)JOB_COMPLETION_INDEX=1: .*JAX_NUM_PROCESSES.*JAX_COORDINATOR_ADDRESS"):
        detect(environ={"JOB_COMPLETION_INDEX": "1"})
    assert not detect(environ={"JOB_COMPLETION_INDEX": "1", "JAX_NUM_PROCESSES": "1"}).cluster_spec()


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX=0: this is a pod of an Indexed Job"),
        (SLURM_BATCH, "SLURM_NTASKS=4, but this program was started by the batch script itself."),
    ],
)
def test_the_first_of_several_is_warned(environ: dict[str, str], said: str, caplog: pytest.LogCaptureFixture) -> None:
    assert not detect(environ=dict(environ)).cluster_spec()
    assert [said in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("environ", [{"OMPI_COMM_WORLD_SIZE": "x"}, {"SLURM_STEP_NUM_TASKS": ""}, {"SM_HOSTS": "{}"}])
def test_a_scheduler_that_cannot_be_read_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match=next(iter(environ))):
        detect(environ=dict(environ))
