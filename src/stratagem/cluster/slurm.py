"""Slurm: tasks and nodes of a job step, from the variables that `srun` sets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from typing import Final

from stratagem.cluster.resolver import ClusterResolver, port_in, read_count, started_several, visible_gpus
from stratagem.cluster.spec import ClusterSpec, Task, join_address
from stratagem.core.environment import CUDA_VISIBLE_DEVICES, SLURM_PROCID
from stratagem.core.errors import ClusterError

SLURM_NODEID: Final = "SLURM_NODEID"
"""Number of the node that this task runs on."""

SLURM_LOCALID: Final = "SLURM_LOCALID"
"""Number of this task on its node."""

SLURM_STEP_NUM_TASKS: Final = "SLURM_STEP_NUM_TASKS"
"""How many tasks `srun` started in this job step; absent in a batch script itself."""

SLURM_STEP_NODELIST: Final = "SLURM_STEP_NODELIST"
"""Nodes of the job step, for instance `node[01-03,7],gpu-a`."""

SLURM_STEP_TASKS_PER_NODE: Final = "SLURM_STEP_TASKS_PER_NODE"
"""Tasks on each node of the job step, for instance `2(x3),1`."""

SLURM_DISTRIBUTION: Final = "SLURM_DISTRIBUTION"
"""How `srun` deals tasks to nodes: `block`, `cyclic`, ..."""

SLURM_GPUS_ON_NODE: Final = "SLURM_GPUS_ON_NODE"
"""How many GPUs of this node the job may use."""

DEFAULT_PORT: Final = 8888
"""Port of the first task on each node, as in TensorFlow."""

MAX_NODES: Final = 100_000
"""More nodes than any machine has: a mistyped range must not fill the memory."""


class SlurmClusterResolver(ClusterResolver):
    """Read the cluster of a Slurm job step (`tf.distribute.cluster_resolver.SlurmClusterResolver`).

    Start the program with `srun`, because a batch script itself is not a job step. Several tasks on one node share its
    GPUs through CUDA_VISIBLE_DEVICES, which `cluster_spec` sets.

    Args:
        jobs: Number of tasks of each job in order of rank, for instance {"chief": 1, "worker": 3}; None means that all
            tasks are workers.
        port_base: Port of the first task on each node; the next tasks use the next ports. None
            takes STRATAGEM_PORT, or 8888 as TensorFlow does.
        gpus_per_node: GPUs on each node; None means the number that Slurm or the machine reports.
        gpus_per_task: GPUs for each task; None means an equal share of the node's GPUs.
        tasks_per_node: Tasks on each node, or a dict by host; None means the number that Slurm reports.
        auto_set_gpu: Whether to set CUDA_VISIBLE_DEVICES.
        rpc_layer: The part before "://" in the result of `master`.
        environ: Variables of the job step; None means `os.environ`.

    Raises:
        ClusterError: From every method, if the variables are missing or contradict each other.

    Example:
        >>> resolver = SlurmClusterResolver(environ={
        ...     "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2",
        ...     "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['node1:8888', 'node2:8888']}), 1)
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int | None = None,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
        *,
        environ: MutableMapping[str, str] | None = None,
    ) -> None:
        self._jobs = jobs
        self._port_base = port_base
        self._gpus_per_node = gpus_per_node
        self._gpus_per_task = gpus_per_task
        self._tasks_per_node = tasks_per_node
        self._auto_set_gpu = auto_set_gpu
        self._rpc_layer = rpc_layer
        self._environ = os.environ if environ is None else environ

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether `srun` started more than one task."""
        return started_several(environ, SLURM_STEP_NUM_TASKS)

    def cluster_spec(self) -> ClusterSpec:
        """Return the tasks of the job step; also give this task its GPUs."""
        places = self._places()
        port = self._port_base or port_in(self._environ, DEFAULT_PORT)
        addresses = [join_address(host, port + local) for host, local in places]
        jobs: dict[str, dict[int, str]] = {}
        for task, address in zip(self._tasks(len(places)), addresses, strict=True):
            jobs.setdefault(task.type, {})[task.index] = address
        if self._auto_set_gpu:
            self._take_gpus(places)
        return ClusterSpec(jobs)

    def get_task_info(self) -> tuple[str, int]:
        """Return the type and index of this task."""
        task = self._own_task()
        return task.type, task.index

    def _own_task(self) -> Task:
        return self._tasks(len(self._places()))[read_count(self._environ, SLURM_PROCID)]

    def _num_gpus(self) -> int:
        return self._share(self._places())

    def _tasks(self, count: int) -> list[Task]:
        jobs = self._jobs or {"worker": count}
        tasks = [Task(job, index) for job, number in jobs.items() for index in range(number)]
        if len(tasks) != count:
            raise ClusterError(
                f"jobs={dict(jobs)} has {len(tasks)} tasks, but the job step has {count}.",
                f"Start as many tasks as jobs has: srun --ntasks={len(tasks)}.",
            )
        return tasks

    def _places(self) -> list[tuple[str, int]]:
        """Return (host, number on that host) of each task, in order of rank."""
        count = read_count(self._environ, SLURM_STEP_NUM_TASKS)
        hosts = expand_node_list(self._environ.get(SLURM_STEP_NODELIST, ""))
        places = deal_tasks(hosts, self._counts(hosts), self._environ.get(SLURM_DISTRIBUTION, "block"))
        rank = read_count(self._environ, SLURM_PROCID)
        if len(places) != count or rank >= count:
            raise ClusterError(
                f"Slurm names {len(places)} places on {len(hosts)} nodes for {count} tasks; this task has rank {rank}.",
                "Start the program with srun, or describe the cluster in TF_CONFIG.",
            )
        self._check_place(hosts, *places[rank])
        return places

    def _counts(self, hosts: list[str]) -> list[int]:
        if isinstance(self._tasks_per_node, int):
            return [self._tasks_per_node] * len(hosts)
        if self._tasks_per_node is not None:
            return [self._tasks_per_node.get(host, 0) for host in hosts]
        counts = expand_tasks_per_node(self._environ.get(SLURM_STEP_TASKS_PER_NODE, ""))
        if len(counts) != len(hosts):
            raise ClusterError(
                f"{SLURM_STEP_TASKS_PER_NODE} describes {len(counts)} nodes, but {SLURM_STEP_NODELIST} lists "
                f"{len(hosts)}.",
                "Pass tasks_per_node= to SlurmClusterResolver.",
            )
        return counts

    def _check_place(self, hosts: list[str], host: str, local: int) -> None:
        """A distribution that we do not know (plane, arbitrary) would give tasks each other's addresses."""
        computed = {SLURM_NODEID: hosts.index(host), SLURM_LOCALID: local}
        told = {name: self._environ[name] for name in computed if name in self._environ}
        if any(value != str(computed[name]) for name, value in told.items()):
            raise ClusterError(
                f"Slurm reports {told} for this task, but its rank and the node list give {computed}.",
                "Start the tasks with srun --distribution=block.",
            )

    def _share(self, places: list[tuple[str, int]]) -> int:
        if self._gpus_per_task is not None:
            return self._gpus_per_task
        host = places[read_count(self._environ, SLURM_PROCID)][0]
        on_node = self._gpus_per_node
        if on_node is None:
            on_node = int(self._environ.get(SLURM_GPUS_ON_NODE, "") or len(visible_gpus(self._environ)))
        return on_node // sum(1 for other, _ in places if other == host)

    def _take_gpus(self, places: list[tuple[str, int]]) -> None:
        share = self._share(places)
        told = self._environ.get(CUDA_VISIBLE_DEVICES)
        # An empty variable hides all GPUs, unless the program says how many this node has.
        if not share or (told == "" and self._gpus_per_node is None):
            return
        local = places[read_count(self._environ, SLURM_PROCID)][1]
        gpus = visible_gpus(self._environ) if told else [str(index) for index in range(share * (local + 1))]
        if len(gpus) <= share:  # Slurm itself bound the GPUs to the task (--gpus-per-task), or we did before
            return
        own = gpus[local * share : (local + 1) * share]
        if len(own) < share:
            raise ClusterError(
                f"Task {local} of this node should take {share} GPUs; CUDA_VISIBLE_DEVICES has {len(gpus)} in all.",
                "Ask for more GPUs, start fewer tasks on a node, or pass gpus_per_task=.",
            )
        self._environ[CUDA_VISIBLE_DEVICES] = ",".join(own)


def expand_node_list(text: str) -> list[str]:
    """Return the hosts of a Slurm node list.

    Args:
        text: For instance "node[01-03,7],gpu-a". Several brackets in a name are allowed.

    Raises:
        ClusterError: The text is not a node list, or longer than `MAX_NODES`.

    Example:
        >>> expand_node_list("node[01-03,7],gpu-a")
        ['node01', 'node02', 'node03', 'node7', 'gpu-a']
    """
    # A comma parts names only outside brackets.
    names = re.findall(r"(?:[^\[\],]|\[[^\[\]]*\])+", text)
    if not text or ",".join(names) != text:
        raise ClusterError(f"{text!r} is not a list of nodes.", "Start the program with srun.")
    hosts: list[str] = []
    for name in names:
        hosts += _expand_name(name, MAX_NODES - len(hosts))
    return hosts


def _expand_name(name: str, room: int) -> list[str]:
    prefix, bracket, rest = name.partition("[")
    if not bracket:
        return [name]
    ranges, _, suffix = rest.partition("]")
    numbers: list[str] = []
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        size = int(last) - int(first) + 1
        if not 0 < size <= room:
            raise ClusterError(f"{part!r} in {name!r} is not a range of nodes.", "Start the program with srun.")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    suffixes = _expand_name(suffix, room // len(numbers))
    return [prefix + number + end for number in numbers for end in suffixes]


def expand_tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks on each node.

    Args:
        text: For instance "2(x3),1": two tasks on each of three nodes, one on the fourth.

    Raises:
        ClusterError: The text has another form.

    Example:
        >>> expand_tasks_per_node("2(x3),1")
        [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part)
        if not match:
            raise ClusterError(f"{text!r} does not say how many tasks each node has.", "Start the program with srun.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def deal_tasks(hosts: list[str], counts: list[int], distribution: str) -> list[tuple[str, int]]:
    """Return (host, number on that host) of each task in order of rank.

    Args:
        hosts: The nodes.
        counts: Tasks on each node.
        distribution: Slurm's; "cyclic" deals tasks like cards, all others fill node after node.

    Example:
        >>> deal_tasks(["a", "b"], [2, 1], "cyclic")
        [('a', 0), ('b', 0), ('a', 1)]
    """
    places = [(host, local) for host, count in zip(hosts, counts, strict=True) for local in range(count)]
    return sorted(places, key=lambda place: place[1]) if distribution.startswith("cyclic") else places
