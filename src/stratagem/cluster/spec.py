"""`ClusterSpec`: the tasks of a cluster and their addresses, checked when they are written down."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stratagem.cluster.cluster_def import ClusterDef, JobDef
from stratagem.core.errors import ClusterError

TASK_TYPES: Final = ("chief", "worker", "ps", "evaluator")
"""The types a task may have, as TensorFlow's `multi_worker_util` allows them."""

AT_MOST_ONE: Final = ("chief", "evaluator")
"""Jobs that have a single task."""

DEFAULT_PORT: Final = 2222
"""The port of an address written without one (the port in TensorFlow's own examples)."""

JobTasks = Sequence[str] | Mapping[int, str] | Mapping[str, str]


class SpecError(ClusterError):
    """A fault in a cluster, and where it stands.

    Args:
        found: What was found.
        parts: The other parts of the message.
        path: Keys that lead to the fault, for instance `("worker", 1)`.
    """

    def __init__(self, found: str, *parts: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(found, *parts)
        self.found, self.parts, self.path = found, parts, path

    def below(self, *keys: str | int) -> SpecError:
        """Return the same fault, with the keys that lead to its path."""
        return SpecError(self.found, *self.parts, path=(*keys, *self.path))


@dataclass(frozen=True, order=True)
class Task:
    """One process of a cluster.

    Args:
        type: "chief", "worker", "ps" or "evaluator".
        index: Which one of its type, from 0.

    Raises:
        ClusterError: The type is unknown or the index is not a whole number from 0.

    Example:
        >>> str(Task("worker", 1))
        'worker 1'
    """

    type: str
    index: int

    def __post_init__(self) -> None:
        check_task_type(self.type)
        if not isinstance(self.index, int) or isinstance(self.index, bool) or self.index < 0:
            raise SpecError(
                f"The index of the task is {self.index!r}.",
                "Write a whole number from 0, for instance 0 for the first worker.",
                path=("index",),
            )

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


def check_task_type(task_type: object) -> None:
    """Refuse a type that no task can have.

    Args:
        task_type: What was written as the type of a task or the name of a job.

    Raises:
        ClusterError: It is not one of `TASK_TYPES`.
    """
    if task_type in TASK_TYPES:
        return
    hint = ' ("master" is called "chief" since TensorFlow 1.14)' if task_type == "master" else ""
    raise SpecError(
        f"{task_type!r} is not a type of task{hint}.", f"Write one of {', '.join(TASK_TYPES)}.", path=("type",)
    )


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port.

    Args:
        address: "host:port", "host" (the port is then `DEFAULT_PORT`), "[IPv6]:port" or "IPv6".

    Returns:
        The host without brackets, and the port.

    Raises:
        ClusterError: The address cannot be read.

    Example:
        >>> split_address("10.0.0.1"), split_address("[::1]:8000")
        (('10.0.0.1', 2222), ('::1', 8000))
    """
    try:
        host, port = _host_and_port(address)
        if port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{port!r} is not a port between 1 and 65535")
    except ValueError as error:
        raise SpecError(
            f"{address!r} is not an address: {error}.", 'Write "host:port", or "[IPv6 address]:port".'
        ) from None
    return host, DEFAULT_PORT if port is None else int(port)


def _host_and_port(address: str) -> tuple[str, str | None]:
    if not isinstance(address, str) or not address:
        raise ValueError("an address must be text that is not empty")
    if "/" in address or any(character.isspace() for character in address):
        raise ValueError("it has a character that host names cannot have (no grpc://, no blanks)")
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("the brackets do not match")
        ipaddress.IPv6Address(host)
        return host, rest[1:] if rest else None
    if address.count(":") > 1:
        ipaddress.IPv6Address(address)
        return address, None
    host, colon, port = address.partition(":")
    if not host:
        raise ValueError("it names no host")
    return host, port if colon else None


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets round an IPv6 host.

    Args:
        host: A name, an IPv4 or an IPv6 address.
        port: A port.

    Example:
        >>> join_address("::1", 2222)
        '[::1]:2222'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ClusterSpec:
    """The tasks of a cluster and their addresses (`tf.train.ClusterSpec`).

    Unlike TensorFlow's class, it checks its argument, adds the port 2222 to addresses without a port, and knows which
    tasks train.

    Args:
        cluster: For each job ("chief", "worker", "ps", "evaluator") a list of addresses, or a dict from index to
            address if some tasks are not known. Or another `ClusterSpec`, or a `ClusterDef`.

    Raises:
        ClusterError: An unknown job, an empty job, two chiefs, an address that cannot be read, or
            one that two tasks share.

    Example:
        >>> spec = ClusterSpec({"worker": ["a.example:2222", "b.example"]})
        >>> spec.task_address("worker", 1)
        'b.example:2222'
        >>> [str(task) for task in spec.training_tasks]
        ['worker 0', 'worker 1']
    """

    def __init__(self, cluster: Mapping[str, JobTasks] | ClusterSpec | ClusterDef) -> None:
        jobs = cluster.as_dict() if isinstance(cluster, ClusterSpec) else cluster
        if isinstance(jobs, ClusterDef):
            jobs = {job.name: job.tasks for job in jobs.job}
        if not isinstance(jobs, Mapping):
            raise SpecError(
                f"The cluster is {jobs!r}.",
                'Write a dict of jobs, for instance {"worker": ["localhost:12345", "localhost:23456"]}.',
            )
        self._jobs: dict[str, dict[int, str]] = {job: _read_job(job, tasks) for job, tasks in jobs.items()}
        _check_unique(self._jobs)

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, sorted."""
        return sorted(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Return the number of tasks of a job; `ClusterError` for an unknown job."""
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the sorted indices of a job's tasks; `ClusterError` for an unknown job."""
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task, always with a port.

        Args:
            job_name: One of `jobs`.
            task_index: Index of the task in its job.

        Raises:
            ClusterError: The cluster has no such job or task.
        """
        job = self._job(job_name)
        if task_index not in job:
            raise SpecError(
                f"Job {job_name!r} has no task {task_index!r}; it has {_range(job)}.",
                f"Use one of the indices of job {job_name!r}, or add the address to the cluster.",
                path=("index",),
            )
        return job[task_index]

    def address_of(self, task: Task) -> str:
        """Return the address of a task, as `task_address` does."""
        return self.task_address(task.type, task.index)

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return a job's addresses in order of index, with None for an index without a task."""
        job = self._job(job_name)
        return [job.get(index) for index in range(max(job) + 1)]

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Return the jobs as lists of addresses, or as dicts if indices are missing."""
        return {
            name: [job[index] for index in sorted(job)] if sorted(job) == list(range(len(job))) else dict(job)
            for name, job in self._jobs.items()
        }

    def as_cluster_def(self) -> ClusterDef:
        """Return the jobs in the form of TensorFlow's protocol message (`tf.train.ClusterSpec.as_cluster_def`).

        Example:
            >>> ClusterSpec({"ps": ["a:1"], "chief": ["b:1"]}).as_cluster_def().job[0]
            JobDef(name='chief', tasks={0: 'b:1'})
        """
        return ClusterDef([JobDef(name, dict(sorted(self._jobs[name].items()))) for name in self.jobs])

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks: chief, workers, parameter servers, evaluator."""
        return tuple(Task(job, index) for job in TASK_TYPES for index in sorted(self._jobs.get(job, ())))

    @property
    def training_tasks(self) -> tuple[Task, ...]:
        """The tasks that train together. The first is the chief: the `chief` task, or else worker 0."""
        return tuple(task for task in self.tasks if task.type in ("chief", "worker"))

    def check_task(self, task: Task) -> None:
        """Raise an error for a task that is not in this cluster.

        An evaluator may be missing from the cluster, because no task connects to it. In an empty cluster any task
        stands alone.

        Args:
            task: The task that a process claims to be.

        Raises:
            ClusterError: The cluster lacks the task.
        """
        absent_evaluator = task.type == "evaluator" and "evaluator" not in self._jobs
        if self and not absent_evaluator:
            self.address_of(task)
        elif task.index != 0:
            raise SpecError(
                f"This task is {task}, in a cluster without job {task.type!r}.",
                "Write index 0, or list the tasks in the cluster.",
                path=("index",),
            )

    def _job(self, job_name: str) -> dict[int, str]:
        if job_name not in self._jobs:
            raise SpecError(
                f"The cluster has no job {job_name!r}; it has {', '.join(self.jobs) or 'no jobs'}.",
                f"Add {job_name!r} to the cluster, or use one of its jobs.",
                path=("type",),
            )
        return self._jobs[job_name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple((name, tuple(sorted(self._jobs[name].items()))) for name in self.jobs))

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()})"


def _read_job(job: str, tasks: object) -> dict[int, str]:
    try:
        check_task_type(job)
    except SpecError as error:
        raise error.below(job) from None
    read = {index: _read_address(job, key, address) for key, index, address in _items(job, tasks)}
    if not read:
        raise SpecError(
            f"Job {job!r} has no tasks.", f"Give the addresses of job {job!r}, or leave the job out.", path=(job,)
        )
    if job in AT_MOST_ONE and len(read) > 1:
        raise SpecError(
            f"Job {job!r} has {len(read)} tasks: {', '.join(read.values())}.",
            f"A cluster has at most one {job}; two would write the same files.",
            f"Keep one {job}" + (' and list the others under "worker".' if job == "chief" else "."),
            path=(job,),
        )
    return read


def _items(job: str, tasks: object) -> Iterator[tuple[str | int, int, object]]:
    """Yield (key as written, index, address) for a list of addresses or a dict of index to address."""
    if isinstance(tasks, Sequence) and not isinstance(tasks, str | bytes):
        yield from ((index, index, address) for index, address in enumerate(tasks))
    elif isinstance(tasks, Mapping):
        for key, address in tasks.items():
            # JSON has only texts for keys, so "1" means 1.
            if isinstance(key, bool) or not (isinstance(key, int) or (isinstance(key, str) and key.isdecimal())):
                raise SpecError(
                    f"{key!r} is not an index in job {job!r}.",
                    'Write whole numbers from 0 as keys, for instance {0: "localhost:12345"}.',
                    path=(job, key),
                )
            yield key, Task(job, int(key)).index, address
    else:
        raise SpecError(
            f"Job {job!r} is {tasks!r}.",
            'Write a list of addresses, for instance ["localhost:12345", "localhost:23456"].',
            path=(job,),
        )


def _read_address(job: str, key: str | int, address: object) -> str:
    try:
        return join_address(*split_address(address))  # pyright: ignore[reportArgumentType]  # checked there
    except SpecError as error:
        raise error.below(job, key) from None


def _check_unique(jobs: Mapping[str, Mapping[int, str]]) -> None:
    seen: dict[str, Task] = {}
    for task in (Task(job, index) for job, tasks in jobs.items() for index in tasks):
        address = jobs[task.type][task.index]
        first = seen.setdefault(address, task)
        if first is not task:
            raise SpecError(
                f"{first} and {task} have the same address, {address}.",
                "Two processes cannot listen on the same port.",
                f"Give every task an address of its own (an address without a port means port {DEFAULT_PORT}).",
                path=(task.type, task.index),
            )


def _range(indices: Mapping[int, str]) -> str:
    ordered = sorted(indices)
    dense = ordered == list(range(len(ordered))) and len(ordered) > 2
    return f"tasks 0 to {ordered[-1]}" if dense else f"task {', '.join(map(str, ordered))}"
