"""Open MPI: ranks from the variables that `mpirun` sets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from stratagem.cluster.resolver import ClusterResolver, read_count, started_several
from stratagem.cluster.spec import DEFAULT_PORT, ClusterSpec, Task, join_address
from stratagem.core.environment import OMPI_SIZE
from stratagem.core.errors import ClusterError

OMPI_RANK: Final = "OMPI_COMM_WORLD_RANK"
"""Rank of this process among those that `mpirun` started."""

OMPI_LOCAL_SIZE: Final = "OMPI_COMM_WORLD_LOCAL_SIZE"
"""How many of them run on this machine."""

OMPI_LAUNCHER: Final = "OMPI_MCA_orte_hnp_uri"
"""Where `mpirun` (Open MPI 4) listens: job number and addresses of the machine it runs on."""


class OpenMPIClusterResolver(ClusterResolver):
    """Read the cluster of an `mpirun` of Open MPI: every rank is a worker.

    Open MPI tells a rank its number and, in version 4, the machine of `mpirun`, where rank 0 runs
    unless asked otherwise. Ranks on other machines therefore carry names ("mpi-rank-3") where
    addresses should be: enough for synchronous training, which needs the address of worker 0 only.

    Args:
        port: Port of worker 0; the next workers count on from it.
        coordinator: Host of rank 0; what Open MPI says when None.
        environ: Variables of the process; `os.environ` when None.

    Raises:
        ClusterError: From every method, when the variables are missing, or the host of rank 0 is.

    Example:
        >>> resolver = OpenMPIClusterResolver(environ={"OMPI_COMM_WORLD_SIZE": "2",
        ...     "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['localhost:2222', 'localhost:2223']}), 1)
    """

    def __init__(
        self, port: int = DEFAULT_PORT, coordinator: str | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._port = port
        self._coordinator = coordinator
        self._environ = os.environ if environ is None else environ
        self._task_type = "worker"

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether `mpirun` started more than one process."""
        return started_several(environ, OMPI_SIZE)

    def cluster_spec(self) -> ClusterSpec:
        """Return all ranks as workers."""
        size = read_count(self._environ, OMPI_SIZE)
        if read_count(self._environ, OMPI_LOCAL_SIZE) == size and self._coordinator is None:
            return ClusterSpec({"worker": [f"localhost:{self._port + rank}" for rank in range(size)]})
        first = join_address(self._coordinator or self._launcher_host(), self._port)
        return ClusterSpec({"worker": [first, *(f"mpi-rank-{rank}:{self._port}" for rank in range(1, size))]})

    def _own_task(self) -> Task:
        return Task("worker", read_count(self._environ, OMPI_RANK))

    def _launcher_host(self) -> str:
        # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911 or 1314521088.0;tcp6://[fe80::b9b,2620:10d::2]:43370
        uri = self._environ.get(OMPI_LAUNCHER, "")
        hosts = re.search(r"tcp6?://\[?([^\]/;]+?)\]?:\d+(?:;|$)", uri)
        usable = [host for host in hosts[1].split(",") if not host.startswith(("127.", "fe80:"))] if hosts else []
        if not usable:
            raise ClusterError(
                f"Open MPI started {self._environ[OMPI_SIZE]} ranks on several machines and does not say "
                f"where rank 0 runs ({OMPI_LAUNCHER} is {uri or None!r}).",
                'Pass OpenMPIClusterResolver(coordinator="host of rank 0"), or describe the cluster in TF_CONFIG.',
            )
        return usable[0]
