"""Which resolver fits the place where the program runs."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from stratagem.cluster.mpi import OpenMPIClusterResolver
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver, read_count
from stratagem.cluster.sagemaker import SageMakerClusterResolver, read_hosts
from stratagem.cluster.slurm import SlurmClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.cluster.tf_config import TFConfigClusterResolver
from stratagem.core import environment as env


def detect(resolver: ClusterResolver | None = None, environ: MutableMapping[str, str] | None = None) -> ClusterResolver:
    """Return the resolver of this process.

    What the program says beats TF_CONFIG, which beats Open MPI, Slurm and SageMaker. A scheduler
    counts only where it started more than one task. Without any of them the cluster is empty.

    Args:
        resolver: The program's own, or None.
        environ: Variables of the process; `os.environ` when None.

    Raises:
        ClusterError: A scheduler's variables are there and cannot be read.

    Example:
        >>> detect(environ={}).cluster_spec()
        ClusterSpec({})
    """
    environ = os.environ if environ is None else environ
    if resolver is not None:
        return resolver
    if environ.get(env.TF_CONFIG, "").strip():
        return TFConfigClusterResolver(environ=environ)
    # Before Slurm: mpirun inside a Slurm job starts one daemon on each node with srun, and its ranks
    # inherit the daemon's SLURM_PROCID, so that the ranks of a node would all be one task.
    if env.OMPI_SIZE in environ and read_count(environ, env.OMPI_SIZE) > 1:
        return OpenMPIClusterResolver(environ=environ)
    if env.SLURM_STEP_NUM_TASKS in environ and read_count(environ, env.SLURM_STEP_NUM_TASKS) > 1:
        return SlurmClusterResolver(environ=environ)
    if env.SM_HOSTS in environ and len(read_hosts(environ)) > 1:
        return SageMakerClusterResolver(environ=environ)
    return SimpleClusterResolver(ClusterSpec({}))
