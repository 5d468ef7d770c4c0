"""SageMaker: the hosts of a training job.

SM_HOSTS and SM_CURRENT_HOST come from Amazon's training toolkit, which starts the program in images that have it.
SageMaker itself lays down the same in a file, in every image.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stratagem.cluster.resolver import ClusterResolver, port_in
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.environment import SM_HOSTS
from stratagem.core.errors import ClusterError

SM_CURRENT_HOST: Final = "SM_CURRENT_HOST"
"""This host's name in `SM_HOSTS`."""

RESOURCES: Final = Path("/opt/ml/input/config/resourceconfig.json")
"""File in which SageMaker names the hosts of a job, as `{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}`."""

DEFAULT_PORT: Final = 2223
"""Port of every worker, as in TensorFlow."""


class SageMakerClusterResolver(ClusterResolver):
    """Read the hosts of a SageMaker job; each is a worker (TensorFlow's `SageMakerClusterResolver`).

    Args:
        port: Port of every worker. None takes STRATAGEM_PORT, or 2223 as TensorFlow does.
        task_type: Overrides the type of this task; SageMaker knows only workers.
        task_id: Overrides the index of this host among the hosts; 0 counts as given.
        rpc_layer: The part before "://" in the result of `master`; nothing by default, as in TensorFlow.
        environment: Value of the attribute `environment`.
        environ: Variables of the process; None means `os.environ`.
        resources: The file of SageMaker that is read if SM_HOSTS is not set.

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
        port: int | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        resources: Path = RESOURCES,
    ) -> None:
        self._port = port
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self.environment = environment or ""
        self._environ = os.environ if environ is None else environ
        self._resources = resources

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether the job has more than one host."""
        described = SM_HOSTS in environ or RESOURCES.is_file()
        return described and len(read_hosts(environ)[0]) > 1

    def cluster_spec(self) -> ClusterSpec:
        """Return all hosts as workers."""
        hosts, _ = self._hosts()
        port = self._port or port_in(self._environ, DEFAULT_PORT)
        return ClusterSpec({"worker": [f"{host}:{port}" for host in hosts]} if hosts else {})

    def _own_task(self) -> Task | None:
        hosts, own = self._hosts()
        return Task("worker", hosts.index(own)) if hosts else None

    def _hosts(self) -> tuple[list[str], str]:
        """Return the hosts of the job, and which of them is this one."""
        hosts, own = read_hosts(self._environ, self._resources)
        if not own and len(hosts) < 2:
            return [], own
        if own not in hosts:
            raise ClusterError(
                f"{SM_CURRENT_HOST} is {own!r}, {SM_HOSTS} is {hosts}.",
                f"Set {SM_CURRENT_HOST} to one of the hosts, or pass task_id=.",
            )
        return hosts, own


def read_hosts(environ: Mapping[str, str], resources: Path = RESOURCES) -> tuple[list[str], str]:
    """Return the hosts of the job, and the name of this one.

    Args:
        environ: Variables of the process.
        resources: The file of SageMaker that is read where SM_HOSTS is not set.

    Raises:
        ClusterError: SM_HOSTS is missing or not a JSON list of names. (An empty one has none.)
    """
    text = environ.get(SM_HOSTS)
    if text is None and (described := _described(resources)):
        return described
    if text == "":
        return [], environ.get(SM_CURRENT_HOST, "")
    hosts = _loaded(text or "")
    if not _are_hosts(hosts):
        raise ClusterError(
            f"{SM_HOSTS} is {text!r}.",
            f'Run as a SageMaker training job, which sets {SM_HOSTS} to a list like ["algo-1", "algo-2"].',
        )
    return hosts, environ.get(SM_CURRENT_HOST, "")


def _described(resources: Path) -> tuple[list[str], str] | None:
    """Return what SageMaker's file says; None where there is none, or it says something else."""
    try:
        config = _loaded(resources.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    if not isinstance(config, dict) or not _are_hosts(config.get("hosts")):
        return None
    return config["hosts"], str(config.get("current_host", ""))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _are_hosts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(host, str) for host in value)
