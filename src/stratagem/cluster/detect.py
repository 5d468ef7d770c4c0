"""Choice of the resolver that fits the environment of the program."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Final

from stratagem.cluster.ranks import (
    HorovodClusterResolver,
    JAXClusterResolver,
    MPICHClusterResolver,
    OpenMPIClusterResolver,
    TorchrunClusterResolver,
    TrainerClusterResolver,
)
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver, checked_resolver, started_several
from stratagem.cluster.sagemaker import SageMakerClusterResolver
from stratagem.cluster.slurm import SLURM_STEP_NUM_TASKS, SlurmClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core import environment as env
from stratagem.core.errors import ClusterError, explain
from stratagem.core.log import logger

SCHEDULERS: Final = (
    TFConfigClusterResolver,
    JAXClusterResolver,
    # Before Slurm: mpirun, horovodrun and torchrun inside a Slurm job start one daemon on each node with srun, and its
    # ranks inherit the daemon's SLURM_PROCID, so that the ranks of a node would all be one task.
    OpenMPIClusterResolver,
    MPICHClusterResolver,
    HorovodClusterResolver,
    TorchrunClusterResolver,
    TrainerClusterResolver,  # after torchrun, whose processes inherit its variables
    SlurmClusterResolver,
    SageMakerClusterResolver,
)
"""Resolvers that know by the environment whether they are meant; the first one counts."""


def detect(resolver: ClusterResolver | None = None, environ: MutableMapping[str, str] | None = None) -> ClusterResolver:
    """Return the resolver of this process.

    The program's own resolver comes before TF_CONFIG, TF_CONFIG before the variables of JAX, MPI, Horovod, torchrun,
    a TrainJob, Slurm and SageMaker. A scheduler counts only if it started more than one task. Without any of them the
    cluster is empty; a warning says so where the process looks like one of several all the same.

    Args:
        resolver: The program's own, or None.
        environ: Variables of the process; `os.environ` when None.

    Raises:
        ClusterError: A scheduler's variables are there and cannot be read, or do not say who the others are.
        InputError: The program's own is no resolver.

    Example:
        >>> detect(environ={}).cluster_spec()
        ClusterSpec({})
    """
    environ = os.environ if environ is None else environ
    if resolver is not None:
        return checked_resolver(resolver)
    found = _scheduler(environ)
    if found is not None:
        return found
    _doubt_that_it_is_alone(environ)
    return SimpleClusterResolver(ClusterSpec({}))


def count_workers(environ: MutableMapping[str, str] | None = None) -> int:
    """Return how many workers would train together in this environment; 1 for a process that is no worker.

    Args:
        environ: Variables of the process; `os.environ` when None.

    Raises:
        ClusterError: A scheduler's variables are there and cannot be read.

    Example:
        >>> count_workers({"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "head", "MASTER_PORT": "29500"})
        4
    """
    found = _scheduler(os.environ if environ is None else environ)
    if found is None or found.task_type not in ("chief", "worker"):
        return 1
    return max(1, len(found.cluster_spec().training_tasks))


def _scheduler(environ: MutableMapping[str, str]) -> ClusterResolver | None:
    found = next((scheduler for scheduler in SCHEDULERS if scheduler.is_here(environ)), None)
    return None if found is None else found(environ=environ)


def _doubt_that_it_is_alone(environ: Mapping[str, str]) -> None:
    """Refuse a process, or warn of one, that was started as one of several and is told of none of them."""
    index = environ.get(env.JOB_COMPLETION_INDEX)
    if index is not None and env.JAX_NUM_PROCESSES not in environ:
        found = (
            f"{env.JOB_COMPLETION_INDEX}={index}: this is a pod of an Indexed Job, but no variable describes the "
            "other pods."
        )
        consequence = "Each pod trains alone, as a chief, and all write the same files."
        remedy = (
            f"Write {env.JAX_NUM_PROCESSES} (how many pods) and {JAXClusterResolver.ADDRESS} (host:port of pod 0) "
            "into the manifest, or TF_CONFIG, as `stratagem manifest --for indexed-job` does. If each pod is to "
            f"train alone, set {env.JAX_NUM_PROCESSES}=1."
        )
        if index != "0":
            raise ClusterError(found, consequence, remedy)
        logger.warning(explain(found, consequence, remedy))
    if started_several(environ, env.SLURM_NTASKS) and SLURM_STEP_NUM_TASKS not in environ:
        logger.warning(
            explain(
                f"{env.SLURM_NTASKS}={environ[env.SLURM_NTASKS]}, but this program was started by the batch script "
                "itself.",
                "It trains alone, on one node of the job.",
                "Write srun before the command, which starts all tasks: srun python train.py",
            )
        )
