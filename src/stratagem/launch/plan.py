"""The tasks of this node, from the arguments of `stratagem run`. Pure: starts nothing, asks nobody.

On one node each worker gets a free port of the loopback address. With `--coordinator HOST:PORT` every node computes the
same addresses without talking to the others: worker `i` of the whole cluster listens on PORT + i, at the host of its
node. Node 0 is HOST. The other hosts come from `--node-hosts`; without it they are called `node-1`, `node-2`, ... That
is enough for JAX, where every task finds the others through the coordinator, worker 0.
"""

from __future__ import annotations

import importlib
import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stratagem.core import environment
from stratagem.core.backend import NEEDED
from stratagem.core.cores import divide_cores
from stratagem.core.errors import ClusterError
from stratagem.core.tunables import to_start_with
from stratagem.launch.machine import LOOPBACK, Machine, free_ports

_MAX_PORT = 65535


@dataclass(frozen=True)
class Request:
    """The arguments of `stratagem run` that describe the cluster.

    Args:
        command: What each task runs, after the Python interpreter.
        workers: Workers on each node.
        devices_per_worker: GPUs, or virtual CPU devices, of each worker. None means all GPUs shared
            equally, or JAX's own one CPU device.
        nodes: How many machines run this command.
        node_rank: Which of them this is, from 0.
        coordinator: `host:port` of worker 0, needed with several nodes.
        node_hosts: Host of each node; may be empty.
        evaluator: Whether node 0 also runs an evaluator.
        ps: How many parameter servers run beside the workers, with a chief that hands out the work.

    Raises:
        ClusterError: The arguments do not describe a cluster.
    """

    command: tuple[str, ...]
    workers: int = 1
    devices_per_worker: int | None = None
    nodes: int = 1
    node_rank: int = 0
    coordinator: str | None = None
    node_hosts: tuple[str, ...] = ()
    evaluator: bool = False
    ps: int = 0

    def __post_init__(self) -> None:
        _require_positive("--workers", self.workers, "No task could be started.")
        _require_positive("--nodes", self.nodes, "No task could be started.")
        if self.devices_per_worker is not None:
            _require_positive(
                "--devices-per-worker", self.devices_per_worker, "A worker would have no device to run on."
            )
        if self.ps < 0 or (self.ps and self.nodes > 1):
            raise ClusterError(
                f"--ps is {self.ps}, --nodes is {self.nodes}.",
                "The nodes could not agree on the keys of the cluster.",
                "Run parameter servers on one node, or write a TF_CONFIG for each task.",
            )
        if not 0 <= self.node_rank < self.nodes:
            raise ClusterError(
                f"--node-rank is {self.node_rank}, --nodes is {self.nodes}.",
                "The workers of this node would not be part of the cluster.",
                f"Give each node its own --node-rank, from 0 to {self.nodes - 1}.",
            )
        if self.nodes > 1 and self.coordinator is None:
            raise ClusterError(
                f"--nodes is {self.nodes}, and no --coordinator is given.",
                "The nodes could not find one another.",
                "Give every node the same --coordinator HOST:PORT, an address of node 0 that all can reach.",
            )
        if self.coordinator is not None:
            _host_and_port(self.coordinator, self.workers * self.nodes)
        if self.node_hosts:
            self._check_node_hosts()

    def _check_node_hosts(self) -> None:
        if self.coordinator is None:
            raise ClusterError(
                f"--node-hosts is {','.join(self.node_hosts)!r}, and no --coordinator is given.",
                "The ports of the workers would be unknown.",
                f"Add --coordinator {self.node_hosts[0]}:PORT.",
            )
        if len(self.node_hosts) != self.nodes or not all(self.node_hosts):
            raise ClusterError(
                f"--node-hosts names {len([host for host in self.node_hosts if host])} hosts, --nodes is {self.nodes}.",
                "The workers of some node would have no address.",
                f"Name {self.nodes} hosts, in the order of their --node-rank.",
            )
        host, _ = _host_and_port(self.coordinator, self.workers * self.nodes)
        if self.node_hosts[0] != host:
            raise ClusterError(
                f"--node-hosts begins with {self.node_hosts[0]!r}, --coordinator is {self.coordinator!r}.",
                "Worker 0 is the coordinator and runs on node 0, so it would have two addresses.",
                f"Begin --node-hosts with {host}.",
            )


@dataclass(frozen=True)
class TaskPlan:
    """One task, ready to be started.

    Args:
        type: Type of the task, as in TF_CONFIG.
        index: Index among the tasks of its type in the whole cluster.
        is_chief: Whether this is the task whose progress is shown.
        command: The program and its arguments.
        environment: Variables to set, on top of those of the launcher.
        cores: The cores to run on; empty leaves that to the system.
    """

    type: str
    index: int
    is_chief: bool
    command: tuple[str, ...]
    environment: dict[str, str] = field(hash=False)
    cores: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The task as messages name it, for instance `worker 0`."""
        return f"{self.type} {self.index}"

    @property
    def log_name(self) -> str:
        """The file that keeps its output, for instance `worker-0.log`."""
        return f"{self.type}-{self.index}.log"


def make_plan(
    request: Request,
    machine: Machine,
    variables: Mapping[str, str],
    ports: Callable[[int], Sequence[int]] = free_ports,
) -> list[TaskPlan]:
    """Return the tasks to start on this node.

    Args:
        request: What the user asked for.
        machine: What this machine offers.
        variables: The environment that the tasks inherit. Settings of the user about threads stay.
        ports: Finds that many free ports.

    Returns:
        One plan for each worker of this node, in the order of their index; behind them the evaluator, if there is
        one. With parameter servers the chief comes first and they come last.

    Raises:
        ClusterError: The machine cannot give what was asked for.

    Example:
        >>> tasks = make_plan(Request(("train.py",), workers=2), Machine((0, 1), 2), {}, ports=lambda n: [4001, 4002])
        >>> tasks[1].name, tasks[1].cores
        ('worker 1', (1,))
        >>> tasks[1].environment["TF_CONFIG"]
        '{"cluster": {"worker": ["127.0.0.1:4001", "127.0.0.1:4002"]}, "task": {"type": "worker", "index": 1}}'
    """
    cluster = _cluster(request, ports)
    keys = _key_variables(request, cluster)
    secret = _secret_variable(request, variables)
    chief = "chief" if request.ps else "worker"

    def plan(task_type: str, index: int, threads: int, devices: dict[str, str], cores: tuple[int, ...]) -> TaskPlan:
        settings = {
            environment.TF_CONFIG: json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}}),
            environment.KERAS_BACKEND: NEEDED,
            environment.LAUNCHED: "1",
            environment.PYTHONUNBUFFERED: "1",
            environment.PYTHONFAULTHANDLER: "1",
            **{name: str(threads) for name in environment.THREAD_COUNTS if name not in variables},
            **({} if machine.gpus else to_start_with(variables, machine.c_library)),
            **devices,
            **keys.get((task_type, index), {}),
            **secret,
        }
        is_chief = task_type == chief and index == 0
        return TaskPlan(task_type, index, is_chief, (sys.executable, *request.command), settings, cores)

    def beside(task_type: str, index: int) -> TaskPlan:
        # On whatever core is free, and off the workers' GPUs: it must not slow a step.
        return plan(task_type, index, 1, {environment.CUDA_VISIBLE_DEVICES: ""} if machine.gpus else {}, ())

    first = request.node_rank * request.workers
    devices = _device_variables(request, machine)
    threads = max(1, machine.num_cores // request.workers)
    tasks = [
        plan("worker", first + local, len(own) or threads, devices[local], own)
        for local, own in enumerate(divide_cores(machine.cores, request.workers))
    ]
    if request.evaluator and request.node_rank == 0:
        tasks.append(beside("evaluator", 0))
    if request.ps:
        tasks = [beside("chief", 0), *tasks, *(beside("ps", index) for index in range(request.ps))]
    return tasks


def _cluster(request: Request, ports: Callable[[int], Sequence[int]]) -> dict[str, list[str]]:
    """Return the jobs of the cluster and their addresses."""
    if not request.ps:
        return {"worker": worker_addresses(request, ports)}
    free = [f"{LOOPBACK}:{port}" for port in ports(1 + request.workers + request.ps)]
    return {"chief": free[:1], "worker": free[1 : 1 + request.workers], "ps": free[1 + request.workers :]}


def _key_variables(request: Request, cluster: Mapping[str, Sequence[str]]) -> dict[tuple[str, int], dict[str, str]]:
    """Return the variable with the keys of each task; only a cluster with parameter servers has keys."""
    if not request.ps:
        return {}
    module = importlib.import_module("stratagem.transport.keys")  # needs ZeroMQ, which other runs do without
    keys = module.make_keys(request.workers)
    tasks = [(task_type, index) for task_type, addresses in cluster.items() for index in range(len(addresses))]
    return {task: {environment.KEYS: keys[module.holder_for(*task)].as_text()} for task in tasks}


def _secret_variable(request: Request, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variable with the secret of the cluster; none where the user has set one, or other nodes need it."""
    if has_secret(variables) or request.nodes > 1:
        return {}
    return {environment.SECRET: secrets.token_hex(32)}


def has_secret(variables: Mapping[str, str]) -> bool:
    """Return whether these variables of a process give it the secret of a cluster."""
    return bool(variables.get(environment.SECRET) or variables.get(environment.SECRET_FILE))


def worker_addresses(request: Request, ports: Callable[[int], Sequence[int]] = free_ports) -> list[str]:
    """Return `host:port` of every worker of the cluster, by the rule at the top of this file."""
    total = request.workers * request.nodes
    if request.coordinator is None:
        return [f"{LOOPBACK}:{port}" for port in ports(total)]
    host, port = _host_and_port(request.coordinator, total)
    hosts = request.node_hosts or (host, *(f"node-{rank}" for rank in range(1, request.nodes)))
    return [f"{hosts[index // request.workers]}:{port + index}" for index in range(total)]


def _device_variables(request: Request, machine: Machine) -> list[dict[str, str]]:
    """Return, for each local worker, the variables that give it its devices."""
    wanted = request.devices_per_worker
    if not machine.gpus:
        each = {} if wanted is None else {environment.NUM_CPU_DEVICES: str(wanted)}
        return [dict(each) for _ in range(request.workers)]
    count = len(machine.gpus) // request.workers if wanted is None else wanted
    if count == 0 or count * request.workers > len(machine.gpus):
        devices = "" if wanted is None else f" with {wanted} devices each"
        raise ClusterError(
            f"{request.workers} workers{devices} were asked for; this machine has "
            f"{len(machine.gpus)} GPUs ({', '.join(machine.gpus)}).",
            "Two workers on one GPU cannot sum their gradients: NCCL refuses.",
            "Ask for fewer workers or devices, or set JAX_PLATFORMS=cpu to train on the CPU.",
        )
    shares = [machine.gpus[worker * count : (worker + 1) * count] for worker in range(request.workers)]
    return [{environment.CUDA_VISIBLE_DEVICES: ",".join(share)} for share in shares]


def _require_positive(option: str, value: int, consequence: str) -> None:
    if value < 1:
        raise ClusterError(f"{option} is {value}.", consequence, f"Write {option} 1 or more.")


def _host_and_port(coordinator: str, num_workers: int) -> tuple[str, int]:
    """Split `host:port` (`[v6]:port` for IPv6), and check that the ports of all workers exist."""
    match = re.fullmatch(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]\s]+):(?P<port>\d+)", coordinator)
    if match is None:
        raise ClusterError(
            f"--coordinator is {coordinator!r}.",
            "The workers could not reach worker 0.",
            "Write HOST:PORT, for instance 10.0.0.5:12345 or [fe80::1]:12345.",
        )
    port = int(match["port"])
    if not 1 <= port <= _MAX_PORT - num_workers + 1:
        raise ClusterError(
            f"--coordinator is {coordinator!r}, and the cluster has {num_workers} workers.",
            f"Worker i listens on port {port} + i, and ports go from 1 to {_MAX_PORT}.",
            f"Choose a port up to {_MAX_PORT - num_workers + 1}.",
        )
    return match["host"], port
