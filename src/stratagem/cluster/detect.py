"""Choice of the resolver that fits the environment of the program."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

from stratagem.cluster.mpi import OpenMPIClusterResolver
from stratagem.cluster.resolver import ClusterResolver, SimpleClusterResolver
from stratagem.cluster.sagemaker import SageMakerClusterResolver
from stratagem.cluster.slurm import SlurmClusterResolver
from stratagem.cluster.spec import ClusterSpec
from stratagem.cluster.tf_config import TFConfigClusterResolver

SCHEDULERS: Final = (
    TFConfigClusterResolver,
    # Before Slurm: mpirun inside a Slurm job starts one daemon on each node with srun, and its ranks
    # inherit the daemon's SLURM_PROCID, so that the ranks of a node would all be one task.
    OpenMPIClusterResolver,
    SlurmClusterResolver,
    SageMakerClusterResolver,
)
"""Resolvers that know by the environment whether they are meant; the first one counts."""


def detect(resolver: ClusterResolver | None = None, environ: MutableMapping[str, str] | None = None) -> ClusterResolver:
    """Return the resolver of this process.

    The program's own resolver comes before TF_CONFIG, TF_CONFIG before Open MPI, Slurm and SageMaker. A scheduler
    counts only if it started more than one task. Without any of them the cluster is empty.

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
    found = next((scheduler for scheduler in SCHEDULERS if scheduler.is_here(environ)), None)
    return SimpleClusterResolver(ClusterSpec({})) if found is None else found(environ=environ)
