"""`ClusterResolver`, and the two resolvers that need no environment."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.environment import CUDA_VISIBLE_DEVICES, PORT, SHARED_GPUS
from stratagem.core.errors import ClusterError, InputError, explain
from stratagem.core.gpus import chosen_gpus

GPU_FOLDER = Path("/proc/driver/nvidia/gpus")


class ClusterResolver(abc.ABC):
    """Base of all cluster resolvers (`tf.distribute.cluster_resolver.ClusterResolver`).

    A resolver tells which tasks are in the cluster, and which of them this process is.

    A subclass implements `cluster_spec`, and sets or overrides `task_type` and `task_id`. A resolver for a scheduler
    also implements `is_here` and `_own_task`, and is listed in `stratagem.cluster.detect.SCHEDULERS`.

    Example:
        >>> class Fixed(ClusterResolver):
        ...     def cluster_spec(self):
        ...         return ClusterSpec({"worker": ["localhost:12345", "localhost:23456"]})
        >>> resolver = Fixed()
        >>> resolver.task_type, resolver.task_id = "worker", 1
        >>> resolver.master(rpc_layer="grpc")
        'grpc://localhost:23456'
    """

    # On the class, so that a subclass written for TensorFlow need not call `super().__init__()`.
    _task_type: str | None = None
    _task_id: int | None = None
    _rpc_layer: str | None = None
    environment: str = ""
    """The environment of the task, for instance "google"; empty if it is not known."""

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether these environment variables describe a cluster that this resolver reads."""
        return False

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Return the current cluster; empty if there is none."""

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the address of a task.

        Args:
            task_type: Type of the task; None means this task's own.
            task_id: Index of the task; None means this task's own.
            rpc_layer: The part before "://"; None means the resolver's own.

        Returns:
            For instance "grpc://localhost:12345", or "" if the task has no address.

        Raises:
            ClusterError: The cluster has no such task.
        """
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        spec = self.cluster_spec()
        if not spec or task_type is None or task_id is None:
            return ""
        if task_type == "evaluator" and task_type not in spec.jobs:
            return ""  # nobody talks to it, so it needs no address
        return master_url(spec.task_address(task_type, task_id), rpc_layer or self.rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Return how many accelerators this task sees, by kind, without starting JAX.

        Args:
            task_type: Unused, because all tasks of a cluster are equal here.
            task_id: Unused, as above.
            config_proto: Unused; TensorFlow's argument.

        Returns:
            For instance {"GPU": 4}; empty without accelerators.
        """
        gpus = self._num_gpus()
        return {"GPU": gpus} if gpus else {}

    def _num_gpus(self) -> int:
        """Return how many GPUs this task has."""
        return len(visible_gpus(os.environ))

    def _own_task(self) -> Task | None:
        """Return which task this process is, as far as the environment says; what was given goes before it."""
        return None

    @property
    def task_type(self) -> str | None:
        """The type of this task, or None when it is not known."""
        if self._task_type is not None:
            return self._task_type
        return task.type if (task := self._own_task()) else None

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task among those of its type, or None when it is not known."""
        if self._task_id is not None:
            return self._task_id
        return task.index if (task := self._own_task()) else None

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The part before "://" in the result of `master`."""
        return self._rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer


class SimpleClusterResolver(ClusterResolver):
    """Use the cluster and the task that are given (`tf.distribute.cluster_resolver.SimpleClusterResolver`).

    Args:
        cluster_spec: The cluster.
        master: The result of `master()` without arguments.
        task_type: The type of this task.
        task_id: The index of this task.
        environment: Value of the attribute `environment`.
        num_accelerators: The result of `num_accelerators()`; None means the visible GPUs.
        rpc_layer: The part before "://" in the result of `master`.

    Raises:
        TypeError: `cluster_spec` is not a `ClusterSpec`.

    Example:
        >>> spec = ClusterSpec({"worker": ["localhost:12345", "localhost:23456"]})
        >>> SimpleClusterResolver(spec, task_type="worker", task_id=0).master()
        'localhost:12345'
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(
                explain(
                    f"cluster_spec is {cluster_spec!r}, a {type(cluster_spec).__name__}.",
                    "Write SimpleClusterResolver(ClusterSpec({...})).",
                )
            )
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type = task_type
        self._task_id = task_id
        self.environment = environment
        self._num_accelerators = num_accelerators
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster that was given."""
        return self._cluster_spec

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the address of a task, or the master that was given."""
        if self._master and task_type is None and task_id is None:
            return master_url(self._master, rpc_layer or self.rpc_layer)
        return super().master(task_type, task_id, rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Return the given number, or the visible GPUs."""
        if self._num_accelerators is None:
            return super().num_accelerators(task_type, task_id, config_proto)
        return dict(self._num_accelerators)


class ConflictError(ClusterError, KeyError):
    """Two resolvers give one task two addresses. (TensorFlow raises a KeyError.)"""

    __str__ = Exception.__str__  # a KeyError shows its message as Python text


class UnionResolver(ClusterResolver):
    """Join several clusters (`tf.distribute.cluster_resolver.UnionResolver`).

    Jobs that are lists are joined in order; if one of them is a dict, indices are kept. All other answers come from the
    first resolver, unless given here.

    Args:
        *resolvers: The resolvers to join, at least one.
        rpc_layer: Overrides the first resolver's.
        task_type: Overrides the first resolver's.
        task_id: Overrides the first resolver's; 0 counts as given.

    Raises:
        TypeError: No resolver was given, or an argument is not a resolver.

    Example:
        >>> workers = SimpleClusterResolver(ClusterSpec({"worker": ["a:1"]}), task_type="worker", task_id=0)
        >>> more = SimpleClusterResolver(ClusterSpec({"worker": ["b:1"], "ps": ["c:1"]}))
        >>> UnionResolver(workers, more).cluster_spec()
        ClusterSpec({'worker': ['a:1', 'b:1'], 'ps': ['c:1']})
    """

    def __init__(
        self,
        *resolvers: ClusterResolver,
        rpc_layer: str | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        if not resolvers or not all(isinstance(resolver, ClusterResolver) for resolver in resolvers):
            raise TypeError(
                explain(
                    f"UnionResolver was given {resolvers!r}.", "Write UnionResolver(first_resolver, second_resolver)."
                )
            )
        first = resolvers[0]
        self._resolvers = resolvers
        self._rpc_layer = first.rpc_layer if rpc_layer is None else rpc_layer
        self._task_type = first.task_type if task_type is None else task_type
        self._task_id = first.task_id if task_id is None else task_id
        self.environment = first.environment

    def cluster_spec(self) -> ClusterSpec:
        """Return the joined cluster.

        Raises:
            ConflictError: Two resolvers give the same task two addresses.
            ClusterError: Two tasks have the same address.
        """
        specs = [resolver.cluster_spec().as_dict() for resolver in self._resolvers]
        names = dict.fromkeys(name for spec in specs for name in spec)
        return ClusterSpec({name: _join(name, [spec[name] for spec in specs if name in spec]) for name in names})

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return the address of a task, or the first resolver's master."""
        if task_type is None and task_id is None:
            return self._resolvers[0].master(rpc_layer=rpc_layer or self.rpc_layer)
        return super().master(task_type, task_id, rpc_layer)

    def num_accelerators(
        self, task_type: str | None = None, task_id: int | None = None, config_proto: object = None
    ) -> dict[str, int]:
        """Return the answer of the first resolver."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)


def _join(job: str, parts: list[list[str] | dict[int, str]]) -> list[str] | dict[int, str]:
    if all(isinstance(part, list) for part in parts):
        return [address for part in parts for address in part]  # pyright: ignore[reportReturnType]  # all are lists
    joined: dict[int, str] = {}
    for part in parts:
        for index, address in part.items() if isinstance(part, dict) else enumerate(part):
            if index in joined:
                raise ConflictError(
                    f"Two resolvers give an address for {Task(job, index)}: {joined[index]} and {address}.",
                    "One of the two processes would be left out.",
                    "Give every task of the joined cluster an index of its own.",
                )
            joined[index] = address
    return joined


def master_url(address: str, rpc_layer: str | None) -> str:
    """Return `address`, with `rpc_layer` and "://" before it where there is a layer.

    Args:
        address: For instance "localhost:12345".
        rpc_layer: For instance "grpc", or None.
    """
    return f"{rpc_layer}://{address}" if rpc_layer else address


def visible_gpus(environ: Mapping[str, str], folder: Path = GPU_FOLDER) -> list[str]:
    """Return the names of the NVIDIA GPUs that this process may use, without starting a driver.

    Args:
        environ: Environment of the process; `CUDA_VISIBLE_DEVICES` limits the GPUs.
        folder: Where the driver lists the GPUs of the machine.
    """
    chosen = chosen_gpus(environ)
    if chosen is not None:
        return chosen
    return [str(index) for index in range(len(list(folder.iterdir())))] if folder.is_dir() else []


def share_gpus(environ: MutableMapping[str, str], local_rank: int, local_size: int) -> None:
    """Give this process its equal share of the GPUs that the processes of this machine see. A second call does nothing.

    Args:
        environ: Environment of the process, whose `CUDA_VISIBLE_DEVICES` is set.
        local_rank: Number of this process on this machine.
        local_size: How many processes run here.

    Example:
        >>> environ = {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}
        >>> share_gpus(environ, local_rank=1, local_size=2)
        >>> environ["CUDA_VISIBLE_DEVICES"]
        '6,7'
    """
    gpus = environ.setdefault(SHARED_GPUS, ",".join(visible_gpus(environ))).split(",")
    share = len(gpus) // local_size if local_size > 1 else 0
    if share and gpus != [""]:
        environ[CUDA_VISIBLE_DEVICES] = ",".join(gpus[local_rank * share : (local_rank + 1) * share])


def checked_resolver(resolver: Any) -> ClusterResolver:
    """Return what a program gave as its resolver.

    Raises:
        InputError: It is none: text, a number, or the class itself.
    """
    if isinstance(resolver, type) or not hasattr(resolver, "cluster_spec"):
        shown = resolver.__name__ if isinstance(resolver, type) else repr(resolver)
        raise InputError(
            f"cluster_resolver is {shown}, of type {type(resolver).__name__}.",
            "Give an object such as TFConfigClusterResolver(), or leave it out: TF_CONFIG is read then.",
        )
    return resolver


def started_several(environ: Mapping[str, str], variable: str) -> bool:
    """Return whether a scheduler says in a variable that it started more than one task; False where it is not set."""
    return variable in environ and read_count(environ, variable) > 1


def read_count(environ: Mapping[str, str], name: str) -> int:
    """Return a variable of the environment as a whole number from 0.

    Args:
        environ: Environment of the process.
        name: Name of a variable.

    Raises:
        ClusterError: The variable is missing or not a whole number.
    """
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ClusterError(
            f"{name} is {environ.get(name)!r}.",
            f"Start the program by the scheduler that sets {name}, or describe the cluster in TF_CONFIG.",
        )
    return int(text)


def port_in(environ: Mapping[str, str], default: int) -> int:
    """Return the port that STRATAGEM_PORT says, for resolvers whose scheduler says none.

    Args:
        environ: Environment of the process.
        default: The port where the variable is not set.

    Raises:
        ClusterError: It is not a port.

    Example:
        >>> port_in({"STRATAGEM_PORT": "20001"}, 8888), port_in({}, 8888)
        (20001, 8888)
    """
    text = environ.get(PORT, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ClusterError(f"{PORT} is {text!r}.", f"Write a port, for instance {PORT}=20001.")
    return int(text)
