"""Launchers that give each process a rank: Open MPI, MPICH, Horovod, torchrun, Kubeflow, JAX's own variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from typing import ClassVar, Final

from stratagem.cluster.resolver import ClusterResolver, port_in, read_count, share_gpus, started_several
from stratagem.cluster.spec import DEFAULT_PORT, ClusterSpec, Task, join_address, split_address
from stratagem.core import environment as env
from stratagem.core.errors import ClusterError

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class RankClusterResolver(ClusterResolver):
    """Base of resolvers for launchers that tell a process its rank and how many there are: every rank is a worker.

    Such launchers say at most where rank 0 runs. Ranks on other machines therefore carry names ("rank-3") where
    addresses should be: enough for synchronous training, which needs the address of worker 0 only. Where all ranks run
    on one machine, they share its GPUs equally through CUDA_VISIBLE_DEVICES, set when `cluster_spec` is called.

    Args:
        port: Port of worker 0; the next workers count on from it. None takes the launcher's, STRATAGEM_PORT, or the
            default.
        coordinator: Host of rank 0; what the launcher says when None.
        environ: Variables of the process; `os.environ` when None.

    Raises:
        ClusterError: From every method, when the variables are missing, or the host of rank 0 is.
    """

    LAUNCHER: ClassVar[str]
    """Its name in messages."""

    SIZE: ClassVar[str]
    """Variable with the number of processes."""

    RANK: ClassVar[str]
    """Variable with the rank of this process."""

    LOCAL_SIZE: ClassVar[str] = ""
    """Variable with the number of processes on this machine, if there is one."""

    LOCAL_RANK: ClassVar[str] = ""
    """Variable with the rank of this process among them, if there is one."""

    NAME_OF_A_RANK: ClassVar[str] = "rank"
    """Beginning of the name that stands in place of the address of a rank elsewhere."""

    def __init__(
        self,
        port: int | None = None,
        coordinator: str | None = None,
        *,
        environ: MutableMapping[str, str] | None = None,
    ) -> None:
        self._port = port
        self._coordinator = coordinator
        self._environ = os.environ if environ is None else environ
        self._task_type = "worker"

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether the launcher started more than one process."""
        return started_several(environ, cls.SIZE)

    def cluster_spec(self) -> ClusterSpec:
        """Return all ranks as workers; also give this one its GPUs."""
        size = read_count(self._environ, self.SIZE)
        self._take_gpus()
        said = None if self._coordinator else self._first_address()
        host, port = said or (self._coordinator, None)
        port = self._port or port or port_in(self._environ, DEFAULT_PORT)
        on_this_machine = self.LOCAL_SIZE in self._environ and read_count(self._environ, self.LOCAL_SIZE) == size
        if (on_this_machine and self._coordinator is None) or host in LOOPBACK:
            return ClusterSpec({"worker": [f"localhost:{port + rank}" for rank in range(size)]})
        if host is None:
            raise ClusterError(
                f"{self.LAUNCHER} started {size} processes and does not say where rank 0 runs.",
                f'Pass {type(self).__name__}(coordinator="host of rank 0"), or describe the cluster in TF_CONFIG.',
            )
        others = [f"{self.NAME_OF_A_RANK}-{rank}:{port}" for rank in range(1, size)]
        return ClusterSpec({"worker": [join_address(host, port), *others]})

    def _own_task(self) -> Task:
        return Task("worker", read_count(self._environ, self.RANK))

    def _first_address(self) -> tuple[str, int] | None:
        """Return host and port of rank 0, as far as the launcher says."""
        return None

    def _take_gpus(self) -> None:
        if self.LOCAL_SIZE in self._environ and self.LOCAL_RANK in self._environ:
            local_size = read_count(self._environ, self.LOCAL_SIZE)
            share_gpus(self._environ, read_count(self._environ, self.LOCAL_RANK), local_size)


class OpenMPIClusterResolver(RankClusterResolver):
    """Read the cluster of an `mpirun` of Open MPI.

    Version 4 of Open MPI also tells on which machine `mpirun` runs. By default, rank 0 runs there.

    Example:
        >>> resolver = OpenMPIClusterResolver(environ={"OMPI_COMM_WORLD_SIZE": "2",
        ...     "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['localhost:2222', 'localhost:2223']}), 1)
    """

    LAUNCHER = "Open MPI"
    SIZE = env.OMPI_SIZE
    RANK = "OMPI_COMM_WORLD_RANK"
    LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"
    LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"
    NAME_OF_A_RANK = "mpi-rank"

    def _first_address(self) -> tuple[str, int] | None:
        # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911 or 1314521088.0;tcp6://[fe80::b9b,2620:10d::2]:43370
        uri = self._environ.get("OMPI_MCA_orte_hnp_uri", "")
        hosts = re.search(r"tcp6?://\[?([^\]/;]+?)\]?:\d+(?:;|$)", uri)
        usable = [host for host in hosts[1].split(",") if not host.startswith(("127.", "fe80:"))] if hosts else []
        return (usable[0], port_in(self._environ, DEFAULT_PORT)) if usable else None


class MPICHClusterResolver(RankClusterResolver):
    """Read the cluster of an `mpiexec` of MPICH, MVAPICH or Intel MPI, which all start processes through Hydra.

    Example:
        >>> resolver = MPICHClusterResolver(
        ...     environ={"PMI_SIZE": "2", "PMI_RANK": "0", "MPI_LOCALNRANKS": "1"}, coordinator="node-1")
        >>> resolver.cluster_spec()
        ClusterSpec({'worker': ['node-1:2222', 'mpi-rank-1:2222']})
    """

    LAUNCHER = "mpiexec"
    SIZE = env.PMI_SIZE
    RANK = "PMI_RANK"
    LOCAL_SIZE = "MPI_LOCALNRANKS"
    LOCAL_RANK = "MPI_LOCALRANKID"
    NAME_OF_A_RANK = "mpi-rank"

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether `mpiexec` started several processes; `srun --mpi=pmi2` sets PMI_SIZE, but no local size."""
        return (cls.LOCAL_SIZE in environ or env.SLURM_PROCID not in environ) and started_several(environ, cls.SIZE)


class HorovodClusterResolver(RankClusterResolver):
    """Read the cluster of a `horovodrun` with Gloo (that with MPI is Open MPI's or MPICH's).

    Example:
        >>> resolver = HorovodClusterResolver(
        ...     environ={"HOROVOD_SIZE": "2", "HOROVOD_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['localhost:2222', 'localhost:2223']}), 1)
    """

    LAUNCHER = "horovodrun"
    SIZE = env.HOROVOD_SIZE
    RANK = "HOROVOD_RANK"
    LOCAL_SIZE = "HOROVOD_LOCAL_SIZE"
    LOCAL_RANK = "HOROVOD_LOCAL_RANK"


class TorchrunClusterResolver(RankClusterResolver):
    """Read the cluster of torchrun, of a PyTorchJob of Kubeflow, or of the same variables set by hand.

    `torchrun --nproc-per-node 2 --nnodes 2 train.py` and a PyTorchJob set RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables).

    Example:
        >>> resolver = TorchrunClusterResolver(environ={
        ...     "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['train-master-0:23456', 'rank-1:23456']}), 1)
    """

    LAUNCHER = "torchrun"
    SIZE = env.WORLD_SIZE
    RANK = "RANK"
    LOCAL_SIZE = "LOCAL_WORLD_SIZE"
    LOCAL_RANK = "LOCAL_RANK"

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether more than one process was started, and this one has a rank."""
        return cls.RANK in environ and started_several(environ, cls.SIZE)

    def _first_address(self) -> tuple[str, int] | None:
        host = self._environ.get("MASTER_ADDR")
        if not host:
            return None
        port = read_count(self._environ, "MASTER_PORT")
        # torchrun itself listens on that port, for a store of its own.
        return host, port + 1 if "TORCHELASTIC_RUN_ID" in self._environ else port


class TrainerClusterResolver(RankClusterResolver):
    """Read the cluster of a TrainJob of Kubeflow whose runtime is the one of PyTorch: one worker for each pod.

    The runtime sets the variables of torchrun (PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT). A program
    that is started without torchrun trains on all GPUs of its pod.

    Example:
        >>> resolver = TrainerClusterResolver(environ={"PET_NNODES": "2", "PET_NODE_RANK": "1",
        ...     "PET_MASTER_ADDR": "train-node-0-0.train", "PET_MASTER_PORT": "29500"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['train-node-0-0.train:29500', 'rank-1:29500']}), 1)
    """

    LAUNCHER = "A TrainJob with the runtime of PyTorch"
    SIZE = "PET_NNODES"
    RANK = "PET_NODE_RANK"

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether there are several pods. "1:4" is torchrun's own: as many as come."""
        return environ.get(cls.SIZE, "").isdigit() and cls.RANK in environ and started_several(environ, cls.SIZE)

    def _first_address(self) -> tuple[str, int] | None:
        host = self._environ.get("PET_MASTER_ADDR")
        return (host, read_count(self._environ, "PET_MASTER_PORT")) if host else None


class JAXClusterResolver(RankClusterResolver):
    """Read the cluster from the variables of `jax.distributed.initialize`; Kubeflow's TrainJob sets them.

    In a pod of an Indexed Job of Kubernetes or of a JobSet, you need not set JAX_PROCESS_ID: the index of the pod,
    which Kubernetes sets, is used. Write the other two variables into the manifest
    (https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode).

    Example:
        >>> resolver = JAXClusterResolver(environ={"JAX_NUM_PROCESSES": "2", "JOB_COMPLETION_INDEX": "1",
        ...     "JAX_COORDINATOR_ADDRESS": "train-0.train:12345"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['train-0.train:12345', 'rank-1:12345']}), 1)
    """

    LAUNCHER = "JAX_NUM_PROCESSES"
    SIZE = env.JAX_NUM_PROCESSES
    RANK = "JAX_PROCESS_ID"
    ADDRESS = "JAX_COORDINATOR_ADDRESS"

    def _own_task(self) -> Task:
        by_index = self.RANK not in self._environ and env.JOB_COMPLETION_INDEX in self._environ
        return Task("worker", read_count(self._environ, env.JOB_COMPLETION_INDEX if by_index else self.RANK))

    def _first_address(self) -> tuple[str, int] | None:
        address = self._environ.get(self.ADDRESS)
        return split_address(address) if address else None
