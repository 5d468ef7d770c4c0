"""Stand-in for the clusters of TensorFlow's tests: servers in this process, and addresses of tasks."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Final

from tools.tensorflow_suites.shims.server_processes import ProcessCluster
from tools.tensorflow_suites.verdicts import PROTOCOLS, NotApplicable

import stratagem.tf as tf

_picked: Final[set[int]] = set()
"""Ports that this process was given. The system may offer one of them again before its server listens."""


def pick_unused_port() -> int:
    """Return a port that is free now, and that was not returned before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in _picked:
            _picked.add(port)
            return port


def create_cluster_spec(
    has_chief: bool = False, num_workers: int = 1, num_ps: int = 0, has_eval: bool = False
) -> dict[str, list[str]]:
    """Return addresses of this machine for each task."""
    counts = {"chief": int(has_chief), "worker": num_workers, "ps": num_ps, "evaluator": int(has_eval)}
    return {job: [f"localhost:{pick_unused_port()}" for _ in range(count)] for job, count in counts.items() if count}


def create_in_process_cluster(num_workers: int, num_ps: int, has_chief: bool = False, **_: Any) -> dict[str, list[str]]:
    """Start the servers of a cluster in this process, and return their addresses."""
    if not num_ps:
        raise NotApplicable(PROTOCOLS, "several workers in one process")
    if has_chief:
        raise NotApplicable(PROTOCOLS, "a server that runs what sessions of a chief send")
    spec = create_cluster_spec(num_workers=num_workers, num_ps=num_ps)
    for job, count in (("worker", num_workers), ("ps", num_ps)):
        for index in range(count):
            tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc")
    return spec


class Cluster:
    """A cluster whose servers are in this process; TensorFlow's has a process for each.

    Args:
        num_workers: How many workers it has.
        num_ps: How many parameter servers it has.
    """

    def __init__(self, num_workers: int, num_ps: int, **_: Any) -> None:
        spec = tf.train.ClusterSpec(create_in_process_cluster(num_workers, num_ps))
        self.cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")

    def stop(self) -> None:
        """Do nothing: the servers end with the process."""

    def kill_task(self, job: str, index: int) -> None:
        """Refuse to kill a task: it would be this process."""
        raise NotApplicable(PROTOCOLS, "a server of its own process, to be killed")

    start_task = kill_task


def create_multi_process_cluster(
    num_workers: int, num_ps: int, stream_output: bool = False, **_: Any
) -> Cluster | ProcessCluster:
    """Start a cluster: with a process for each server where a test, as it reads their output, may kill them."""
    if stream_output:
        return ProcessCluster(create_cluster_spec(num_workers=num_workers, num_ps=num_ps))
    return Cluster(num_workers, num_ps)


def _task() -> dict[str, Any]:
    return json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})


def get_task_type() -> str | None:
    """Return the type of this task, as TF_CONFIG has it."""
    return _task().get("type")


def get_task_index() -> int | None:
    """Return the index of this task, as TF_CONFIG has it."""
    return _task().get("index")


def is_chief() -> bool:
    """Return whether this task is the chief."""
    return get_task_type() in (None, "chief") or get_task_index() == 0
