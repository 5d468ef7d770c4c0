"""`Server`: this process as a worker or a parameter server of a cluster."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from stratagem.cluster.orphan import end_with_launcher
from stratagem.cluster.spec import ClusterSpec, Task, split_address
from stratagem.core import environment
from stratagem.core.clock import Clock, Deadline
from stratagem.core.descriptors import allow_descriptors
from stratagem.core.errors import ClusterError, InputError, RefusedError, StartupError, StratagemError, UnavailableError
from stratagem.core.log import announce
from stratagem.ps.own_keys import check_others_can_join, own_keys
from stratagem.ps.server.addresses import Board
from stratagem.ps.server.service import Service
from stratagem.ps.server.store import Store
from stratagem.ps.worker import Worker
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Keys, Role, holder_for
from stratagem.transport.message import DONE, Message
from stratagem.transport.server import MessageServer, Request

CHIEF_SECONDS: Final = 300.0
"""How long a task waits for a chief that says nothing: the chief may be restarting."""

_LOOK_SECONDS: Final = 5.0
_GOODBYE_SECONDS: Final = 5.0
_ANNOUNCE_SECONDS: Final = 2.0

_UNCALLED_SECONDS: Final = 12.0
"""How long a worker waits for the hello of a chief, which comes every 5 s, before it tells where it is."""

_served_ports: Final[set[int]] = set()
"""Ports at which workers and parameter servers listen in this process."""


@dataclass(eq=False)
class Serving:
    """A worker or parameter server, in threads of this process.

    Args:
        task: Which task it is.
        address: Where it listens; port 0 takes a free one, which then stands here.
        servers: Addresses of the parameter servers; a parameter server needs none.
        workers: How many workers there are.
        keys: The keys of this task; None lets everybody in.
        clock: Where time comes from.
    """

    task: Task
    address: str
    servers: Sequence[str] = ()
    workers: int = 1
    _: KW_ONLY
    keys: Keys | None
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self._start = time.time_ns()
        self._over = threading.Event()
        self._heard = Deadline(CHIEF_SECONDS, self.clock)
        self._called = Deadline(0.0, self.clock)
        """When it expires, the chief seems not to know where this task is."""
        life = int(os.environ.get(environment.GENERATION, "1")) - 1
        self._service: Service | Worker
        if self.task.type == "ps":
            self._service = Service(Store(), str(self.task), Board(self.clock))
        else:
            self._service = Worker(self.task.index, self.workers, self.servers, self.keys, life)
        try:
            self._server = self._listen(self.address)
        except StratagemError:
            self._service.close()
            raise
        self.address = self._server.address
        _served_ports.add(split_address(self.address)[1])

    def _listen(self, address: str) -> MessageServer:
        """Listen at the address, or where there is room: a worker says where it is, others cannot."""
        try:
            return MessageServer(address, self._handle, keys=self.keys)
        except StartupError:
            if self.task.type == "ps":
                raise
        server = MessageServer(f"{address.rpartition(':')[0]}:0", self._handle, keys=self.keys)
        announce(f"{self.task} found {address} taken, and listens at {server.address}.")
        return server

    @property
    def is_over(self) -> bool:
        """Whether the chief has said that all is over."""
        return self._over.is_set()

    def wait(self) -> None:
        """Wait until the chief says that all is over.

        Raises:
            UnavailableError: The chief was silent for 300 s.
        """
        while not self.is_over:
            self.look_for_chief()
            if self._heard.expired:
                raise UnavailableError(
                    f"{self.task} has heard nothing from the chief for {CHIEF_SECONDS:g} s.",
                    "See the end of the chief's output; start the cluster again.",
                )
            self._over.wait(_LOOK_SECONDS)

    def look_for_chief(self) -> None:
        """Tell the parameter servers where this worker is, if no chief calls it. (A parameter server never moves.)"""
        if self.task.type == "worker" and self._called.expired:
            where = {"worker": self.task.index, "address": self.address, "life": self._start}
            servers = {(Role.PS, index): server for index, server in enumerate(self.servers)}
            _tell(servers, Message("here", where), self.keys, Deadline(_ANNOUNCE_SECONDS, self.clock))

    def stop(self) -> None:
        """End; what it is doing is finished first. Harmless when ended."""
        _served_ports.discard(split_address(self.address)[1])
        self._service.close()
        self._server.close()

    def _handle(self, request: Request) -> None:
        if request.message.kind == "hello" and request.role in (None, Role.CHIEF):
            self._heard = Deadline(CHIEF_SECONDS, self.clock)
            self._called = Deadline(_UNCALLED_SECONDS, self.clock)
        if request.message.kind == "end":
            request.require(Role.CHIEF)
            self._end(request)
        else:
            self._service(request)

    def _end(self, request: Request) -> None:
        """End, unless the term of the chief that says so has passed. (A short term may never have come here.)"""
        if request.message.fields.get("term") in self._service.past_terms:
            raise RefusedError(f"{self.task} was told to end by a chief that another one has followed.")
        self._over.set()  # before the chief may go on: whoever waits from then on must find it
        request.answer(Message(DONE))


class Server:
    """Makes this process a worker or a parameter server (`tf.distribute.Server`).

    It serves as soon as it is made, in threads of its own. `join` waits until the chief ends the cluster. Source of the
    semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/Server

    Args:
        server_or_cluster_def: The cluster: a `ClusterSpec` or a dict of jobs.
        job_name: "worker" or "ps".
        task_index: Index of the task.
        protocol: Accepted as in TensorFlow; messages use ZeroMQ.
        config: Accepted as in TensorFlow.
        start: Whether to serve at once; otherwise call `start`.

    Raises:
        ClusterError: The cluster lacks the task, or its keys cannot be used.
        InputError: The task is of another type.
        StartupError: The address is in use.

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
                f"A Server was asked for as {self._task}.",
                'Write job_name="worker" or "ps"; the chief makes a ParameterServerStrategy.',
            )
        require_servers(self._spec)
        self.target = self._spec.task_address(self._task.type, self._task.index)
        """The address it listens at."""
        self._serving: Serving | None = None
        if start:
            self.start()

    def start(self) -> None:
        """Start to serve. A second call does nothing."""
        if self._serving is None:
            allow_descriptors()
            servers = [self._spec.task_address("ps", index) for index in self._spec.task_indices("ps")]
            end_with_launcher(os.environ)
            keys = own_keys(holder_for(self._task.type, self._task.index), self._spec)
            self._serving = Serving(self._task, self.target, servers, self._spec.num_tasks("worker"), keys=keys)
            announce(f"{self._task} serves at {self.target}.")

    def join(self) -> None:
        """Serve until the chief ends the cluster.

        A server in the process of its chief serves without this call.

        Raises:
            ClusterError: The cluster has no secret, so no other process can be the chief.
            UnavailableError: The chief was silent for 300 s.
        """
        self.start()
        assert self._serving is not None
        try:
            if not self._serving.is_over:  # else the chief was in this process
                check_others_can_join(str(self._task))
            self._serving.wait()
        finally:
            self._serving.stop()


def end_all(addresses: Mapping[tuple[Role, int], str], keys: Keys | None, term: str) -> None:
    """Tell all workers and parameter servers that it is over; those that do not answer are left alone.

    Args:
        addresses: Where they are, by role and index.
        keys: The keys of the chief.
        term: The term of the chief; tasks in another term go on.
    """
    for role in (Role.WORKER, Role.PS):  # workers may still need the servers
        chosen = {key: address for key, address in addresses.items() if key[0] == role}
        # A time for each: a lost worker uses up all of it.
        _tell(chosen, Message("end", {"term": term}), keys, Deadline(_GOODBYE_SECONDS))


def _tell(addresses: Mapping[tuple[Role, int], str], message: Message, keys: Keys | None, deadline: Deadline) -> None:
    """Say something to several tasks; leave those alone that do not answer."""
    calls = []
    with contextlib.ExitStack() as stack:
        for (role, index), address in addresses.items():
            channel = Channel(f"{role} {index}", address, keys=keys, holder=holder_for(role, index))
            stack.callback(channel.close)
            calls.append((channel, channel.send(message)))
        for channel, number in calls:
            with contextlib.suppress(UnavailableError, RefusedError):
                channel.receive(number, deadline)


def served_elsewhere(spec: ClusterSpec) -> list[str]:
    """Return the workers and parameter servers of a cluster that this process does not serve, with their addresses."""
    tasks = [
        (job, index, spec.task_address(job, index)) for job in ("worker", "ps") for index in spec.task_indices(job)
    ]
    return [f"{job} {index} ({at})" for job, index, at in tasks if split_address(at)[1] not in _served_ports]


def require_servers(spec: ClusterSpec) -> None:
    """Make sure that a cluster has workers and parameter servers.

    Raises:
        ClusterError: It lacks some.
    """
    missing = [job for job in ("ps", "worker") if job not in spec.jobs]
    if missing:
        raise ClusterError(
            f"The cluster has no {' and no '.join(missing)}; it has {', '.join(spec.jobs) or 'no jobs'}.",
            f"{' '.join(f'There must be at least one {job}.' for job in missing)} "
            'List at least one task of each: {"ps": ["host:port"], "worker": ["host:port"]}.',
        )
