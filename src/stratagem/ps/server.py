"""`Server`: a process as a worker or a parameter server of a cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Final

from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core import environment
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, InputError, StratagemError, UnavailableError, explain
from stratagem.core.log import announce
from stratagem.ps.service import Service
from stratagem.ps.store import Store
from stratagem.ps.worker import Worker
from stratagem.transport import server as transport
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys, Role, keys_of_environment
from stratagem.transport.message import Message

CHIEF_SECONDS: Final = 300.0
"""How long a task waits for a chief that says nothing: the chief may be restarting."""

_LOOK_SECONDS: Final = 5.0
_GOODBYE_SECONDS: Final = 5.0


class Serving:
    """A worker or parameter server, in threads of this process.

    Args:
        task: Which.
        address: Where it listens; port 0 takes a free one.
        servers: Addresses of the parameter servers; a parameter server needs none.
        workers: How many workers there are.
        keys: The keys of this task, or None.
        clock: Where time comes from.
    """

    def __init__(
        self,
        task: Task,
        address: str,
        servers: Sequence[str] = (),
        workers: int = 1,
        *,
        keys: Keys | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.task = task
        self._clock = clock or Clock()
        self._over = threading.Event()
        self._heard = Deadline(CHIEF_SECONDS, self._clock)
        life = int(os.environ.get(environment.GENERATION, "1")) - 1
        self._service: Service | Worker
        self._service = Service(Store()) if task.type == "ps" else Worker(task.index, workers, servers, keys, life)
        try:
            self._server = transport.Server(address, self._handle, keys=keys)
        except StratagemError:
            self._service.close()
            raise
        self.address = self._server.address

    def wait(self) -> None:
        """Wait until the chief says that all is over.

        Raises:
            UnavailableError: The chief has said nothing for 300 s.
        """
        while not self._over.wait(_LOOK_SECONDS):
            if self._heard.expired:
                raise UnavailableError(
                    explain(
                        f"{self.task} has heard nothing from the chief for {CHIEF_SECONDS:g} s.",
                        "It would serve for ever.",
                        "See the end of the chief's output; start the cluster again.",
                    )
                )

    def stop(self) -> None:
        """End; what it is doing is finished first. Harmless when ended."""
        self._service.close()
        self._server.close()

    def _handle(self, request: transport.Request) -> None:
        if request.role in (None, Role.CHIEF):
            self._heard = Deadline(CHIEF_SECONDS, self._clock)
        if request.message.kind == "end":
            request.require(Role.CHIEF)
            request.answer(Message("done"))
            self._over.set()
        else:
            self._service(request)


class Server:
    """Makes this process a worker or a parameter server (`tf.distribute.Server`).

    It serves from the moment it is made, in threads of its own. `join` waits until the chief says that all is over.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/Server

    Args:
        server_or_cluster_def: The cluster: a `ClusterSpec` or a dict of jobs.
        job_name: "worker" or "ps".
        task_index: Which of them.
        protocol: Accepted as in TensorFlow; messages travel over ZeroMQ.
        config: Accepted as in TensorFlow.
        start: Whether to serve at once; otherwise `start` does.

    Raises:
        ClusterError: The cluster lacks the task, or has no keys and an address that others reach.
        InputError: The task is of another type.
        StartupError: The address is taken.

    Example:
        >>> cluster = {"ps": ["localhost:2222"], "worker": ["localhost:2223"]}
        >>> Server(cluster, job_name="ps", task_index=0, start=False).target
        'localhost:2222'
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        self._spec = ClusterSpec(server_or_cluster_def)
        self._task = Task(str(job_name), 0 if task_index is None else task_index)
        if self._task.type not in ("worker", "ps"):
            raise InputError(
                explain(
                    f"A Server was asked for as {self._task}.",
                    "Only workers and parameter servers wait to be asked.",
                    'Write job_name="worker" or "ps"; the chief makes a ParameterServerStrategy.',
                )
            )
        require_servers(self._spec)
        self.target = self._spec.task_address(self._task.type, self._task.index)
        """The address it listens at."""
        self._serving: Serving | None = None
        if start:
            self.start()

    def start(self) -> None:
        """Begin to serve; harmless when begun."""
        if self._serving is None:
            servers = [self._spec.task_address("ps", index) for index in self._spec.task_indices("ps")]
            keys = keys_of_environment(os.environ)
            self._serving = Serving(self._task, self.target, servers, self._spec.num_tasks("worker"), keys=keys)
            announce(f"{self._task} serves at {self.target}.")

    def join(self) -> None:
        """Serve until the chief says that all is over; then end.

        Raises:
            UnavailableError: The chief has said nothing for 300 s.
        """
        self.start()
        assert self._serving is not None
        try:
            self._serving.wait()
        finally:
            self._serving.stop()


def end_all(spec: ClusterSpec, keys: Keys | None, clock: Clock | None = None) -> None:
    """Tell all workers and parameter servers that it is over; those that do not answer are left alone.

    Args:
        spec: The cluster.
        keys: The keys of the chief.
        clock: Where time comes from.
    """
    deadline = Deadline(_GOODBYE_SECONDS, clock or Clock())
    for job, role in (("worker", Role.WORKER), ("ps", Role.PS)):  # workers may still need the servers
        calls = []
        for index in spec.task_indices(job):
            channel = Channel(f"{job} {index}", spec.task_address(job, index), keys=keys, role=role, clock=clock)
            calls.append((channel, channel.send(Message("end"))))
        for channel, number in calls:
            try:
                channel.receive(number, deadline)
            except UnavailableError:
                pass
            finally:
                channel.close()


def require_servers(spec: ClusterSpec) -> None:
    """Make sure that a cluster has workers and parameter servers.

    Raises:
        ClusterError: It lacks some.
    """
    missing = [job for job in ("ps", "worker") if job not in spec.jobs]
    if missing:
        raise ClusterError(
            explain(
                f"The cluster has no {' and no '.join(missing)}; it has {', '.join(spec.jobs) or 'no jobs'}.",
                "Variables would have no home, or nobody would compute.",
                'List at least one task of each: {"ps": ["host:port"], "worker": ["host:port"]}.',
            )
        )
