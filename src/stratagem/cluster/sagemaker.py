"""SageMaker: the hosts of a training job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.environment import SM_HOSTS
from stratagem.core.errors import ClusterError

SM_CURRENT_HOST: Final = "SM_CURRENT_HOST"
"""This host's name in `SM_HOSTS`."""


class SageMakerClusterResolver(ClusterResolver):
    """Read the hosts of a SageMaker job; each is a worker (TensorFlow's `SageMakerClusterResolver`).

    Args:
        port: Port of every worker.
        task_type: Overrides the type of this task; SageMaker knows only workers.
        task_id: Overrides the index of this host among the hosts; 0 counts as given.
        rpc_layer: The part before "://" in the result of `master`; nothing by default, as in TensorFlow.
        environment: Value of the attribute `environment`.
        environ: Variables of the process; None means `os.environ`.

    Raises:
        ClusterError: From every method, if SM_HOSTS or SM_CURRENT_HOST cannot be used. Without hosts, and with a single
            host that is not named, there is no cluster.

    Example:
        >>> resolver = SageMakerClusterResolver(
        ...     environ={"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"})
        >>> resolver.cluster_spec(), resolver.task_id
        (ClusterSpec({'worker': ['algo-1:2223', 'algo-2:2223']}), 1)
    """

    def __init__(
        self,
        port: int = 2223,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._port = port
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self.environment = environment or ""
        self._environ = os.environ if environ is None else environ

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether the job has more than one host."""
        return SM_HOSTS in environ and len(read_hosts(environ)) > 1

    def cluster_spec(self) -> ClusterSpec:
        """Return all hosts as workers."""
        hosts, _ = self._hosts()
        return ClusterSpec({"worker": [f"{host}:{self._port}" for host in hosts]} if hosts else {})

    def _own_task(self) -> Task | None:
        hosts, own = self._hosts()
        return Task("worker", hosts.index(own)) if hosts else None

    def _hosts(self) -> tuple[list[str], str]:
        """Return the hosts of the job, and which of them is this one."""
        hosts, own = read_hosts(self._environ), self._environ.get(SM_CURRENT_HOST, "")
        if not own and len(hosts) < 2:
            return [], own
        if own not in hosts:
            raise ClusterError(
                f"{SM_CURRENT_HOST} is {own!r}, {SM_HOSTS} is {hosts}.",
                f"Set {SM_CURRENT_HOST} to one of the hosts, or pass task_id=.",
            )
        return hosts, own


def read_hosts(environ: Mapping[str, str]) -> list[str]:
    """Return the hosts of the job.

    Args:
        environ: Variables of the process.

    Raises:
        ClusterError: SM_HOSTS is missing or not a JSON list of names. (An empty one has none.)
    """
    text = environ.get(SM_HOSTS)
    if text == "":
        return []
    try:
        hosts = json.loads(text or "")
    except json.JSONDecodeError:
        hosts = None
    if not isinstance(hosts, list) or not hosts or not all(isinstance(host, str) for host in hosts):
        raise ClusterError(
            f"{SM_HOSTS} is {text!r}.",
            f'Run as a SageMaker training job, which sets {SM_HOSTS} to a list like ["algo-1", "algo-2"].',
        )
    return hosts
