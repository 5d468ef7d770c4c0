"""Environment variables that Stratagem reads or sets, by name.

Variables that one scheduler sets, and only its resolver reads, stand with that resolver in `stratagem.cluster`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

TF_CONFIG: Final = "TF_CONFIG"
"""JSON description of the cluster and of this task, as TensorFlow defines it."""

KERAS_BACKEND: Final = "KERAS_BACKEND"
"""The backend that Keras loads; Stratagem needs `jax`."""

LAUNCHED: Final = "STRATAGEM_LAUNCHED"
"""Set by `stratagem run` in each task: the launcher shows the output of all tasks in one terminal."""

LAUNCHER_PIPE: Final = "STRATAGEM_LAUNCHER_PIPE"
"""Descriptor and inode of a pipe that closes when the launcher and its guard are gone. Set by `stratagem run`."""

PORT: Final = "STRATAGEM_PORT"
"""Port of the first task on each host, where the scheduler says none (Slurm, SageMaker, MPI)."""

STARTUP_TIMEOUT: Final = "STRATAGEM_STARTUP_TIMEOUT"
"""Seconds to wait for every peer at start-up. Default 300."""

HANG_TIMEOUT: Final = "STRATAGEM_HANG_TIMEOUT"
"""Seconds without progress after which the workers of a cluster end; 0 lets them wait for ever."""

GENERATION: Final = "STRATAGEM_GENERATION"
"""The number of this life of the group, from 1. `stratagem run` sets it and counts it up at each restart."""

KEYS: Final = "STRATAGEM_KEYS"
"""JSON with the keys of a task of a parameter-server cluster: its own secret, everybody's public. Set by
`stratagem run`; a secret, so it is never printed."""

SECRET: Final = "STRATAGEM_SECRET"
"""The secret that the tasks of a cluster prove to each other when they meet. Set by `stratagem run`; never printed."""

SECRET_FILE: Final = "STRATAGEM_SECRET_FILE"
"""File that holds the secret of the cluster, the same on every host, where STRATAGEM_SECRET is not set."""

ELASTIC: Final = "STRATAGEM_ELASTIC"
"""Address at which the coordinator of elastic training listens, as host:port. Set by `stratagem run`, or by whoever
starts a worker that joins a run."""

SPARE: Final = "STRATAGEM_SPARE"
"""Set to 1 for a process that takes part in elastic training only where a worker is missing. Set by `stratagem run`."""

CORES: Final = "STRATAGEM_CORES"
"""Cores of a process and of its whole machine (`core.cores`). Set by `stratagem run --spares` and `--elastic`."""

GRACE: Final = "STRATAGEM_GRACE"
"""Seconds between SIGTERM and SIGKILL, for workers that may leave a run. Set by `stratagem run`; 30 by default."""

MIN_WORKERS: Final = "STRATAGEM_MIN_WORKERS"
"""With fewer workers the chief of parameter servers hands out no work. Set by `stratagem run --elastic --ps`."""

OPEN_CLUSTER: Final = "STRATAGEM_OPEN_CLUSTER"
"""Set to 1: tasks of a parameter-server cluster without keys or a secret let everybody in who reaches their ports."""

PROFILE: Final = "STRATAGEM_PROFILE"
"""Steps that a task records with JAX's profiler: FIRST:LAST:FOLDER. Set by `stratagem run --profile`."""

COUNTERS_FILE: Final = "STRATAGEM_COUNTERS_FILE"
"""The file in which a task counts its steps and seconds. Set by `stratagem run`."""

BLOCK_POINTS: Final = "STRATAGEM_BLOCK_POINTS"
"""Folder through which a test lets workers go on; set by `stratagem.testing.start_workers`."""

XLA_AS_IS: Final = "STRATAGEM_XLA_AS_IS"
"""Set to 1: programs for the CPU reach XLA as JAX made them, also where they are known to be slow."""

DATA: Final = "STRATAGEM_DATA"
"""Folder with `mnist.npz` and `fashion_mnist.npz` for examples, tests and benchmarks."""

NUM_CPU_DEVICES: Final = "JAX_NUM_CPU_DEVICES"
"""How many virtual CPU devices JAX shows, read when JAX is imported."""

JAX_PLATFORMS: Final = "JAX_PLATFORMS"
"""Kinds of devices that JAX may use, for instance `cpu`."""

COMPILATION_CACHE: Final = "JAX_ENABLE_COMPILATION_CACHE"
"""Whether JAX keeps compiled programs at all; on by default, where a folder is named."""

COMPILATION_CACHE_DIR: Final = "JAX_COMPILATION_CACHE_DIR"
"""Folder in which JAX keeps compiled programs. Set by `stratagem run` where the user has not."""

OWN_PROGRAMS: Final = "STRATAGEM_OWN_PROGRAMS"
"""The same folder, where it belongs to this task alone. Set by `stratagem run`."""

CACHE_MIN_SECONDS: Final = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
"""Programs that were compiled sooner than this are not kept; JAX's default is 1."""

CACHE_OF_XLA: Final = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"
"""Caches of XLA's own that lie beside the compiled programs."""

XDG_CACHE_HOME: Final = "XDG_CACHE_HOME"
"""Folder in which this user's programs keep files that they can make again; `~/.cache` by default."""

CUDA_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
"""The NVIDIA GPUs that a process sees, separated by commas."""

SHARED_GPUS: Final = "STRATAGEM_SHARED_GPUS"
"""The GPUs of which the processes of a machine took equal shares. Set where CUDA_VISIBLE_DEVICES is set to a share."""

PYTHONUNBUFFERED: Final = "PYTHONUNBUFFERED"
"""Makes Python write each line at once, so that the launcher can show it."""

PYTHONFAULTHANDLER: Final = "PYTHONFAULTHANDLER"
"""Makes Python print where it was when a signal ends it (a crash inside XLA shows no other trace)."""

NO_COLOR: Final = "NO_COLOR"
"""Set to anything: no colours in the terminal (https://no-color.org)."""

GLIBC_TUNABLES: Final = "GLIBC_TUNABLES"
"""Settings that glibc reads when a process starts: `name=value`, separated by colons."""

THREAD_COUNTS: Final = ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""How many threads XLA:CPU, OpenMP and the linear algebra below NumPy and SciPy start."""

SLURM_PROCID: Final = "SLURM_PROCID"
"""Rank of this task in its Slurm job step."""

SLURM_NTASKS: Final = "SLURM_NTASKS"
"""Number of tasks that a Slurm job was asked to have."""

OMPI_SIZE: Final = "OMPI_COMM_WORLD_SIZE"
"""How many processes `mpirun` of Open MPI started."""

PMI_SIZE: Final = "PMI_SIZE"
"""Number of processes that `mpiexec` of MPICH or Intel MPI started."""

HOROVOD_SIZE: Final = "HOROVOD_SIZE"
"""Number of processes that `horovodrun` started."""

WORLD_SIZE: Final = "WORLD_SIZE"
"""Number of processes that torchrun or a PyTorchJob started."""

JAX_NUM_PROCESSES: Final = "JAX_NUM_PROCESSES"
"""Number of processes that `jax.distributed.initialize` waits for; Kubeflow's TrainJob sets it."""

JOB_COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Index of this pod in an Indexed Job of Kubernetes, which does not say how many there are."""

SM_HOSTS: Final = "SM_HOSTS"
"""JSON list of the hosts of a SageMaker training job."""

PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""Proxies that gRPC would send the traffic of the cluster through."""

NO_GRPC_PROXY: Final = "no_grpc_proxy"
"""Hosts that gRPC reaches without a proxy; gRPC reads it before `no_proxy`."""

NO_PROXY: Final = "no_proxy"
"""Hosts that programs reach without a proxy."""

_PREFIX: Final = "STRATAGEM_"


def misspelt(environ: Iterable[str]) -> list[str]:
    """Return a line for each variable whose name is nearly that of one of ours, and which nothing reads.

    Args:
        environ: Names of variables.

    Example:
        >>> misspelt(["STRATAGEM_HANGTIMEOUT", "HOME"])
        ['STRATAGEM_HANGTIMEOUT is set, and nothing reads it. Did you mean STRATAGEM_HANG_TIMEOUT?']
    """
    known = [value for value in globals().values() if isinstance(value, str) and value.startswith(_PREFIX)]
    strange = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
    near = {
        name: difflib.get_close_matches(name, [each for each in known if each != _PREFIX], 1, 0.85) for name in strange
    }
    return [f"{name} is set, and nothing reads it. Did you mean {found[0]}?" for name, found in near.items() if found]
