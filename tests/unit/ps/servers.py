"""Parameter servers in this process, and what tests and their workers, threads of it, share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stratagem.cluster.resolver import SimpleClusterResolver
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.clock import Clock
from stratagem.core.errors import UnavailableError
from stratagem.ps.client import Servers
from stratagem.ps.own_keys import own_keys
from stratagem.ps.server.service import Service
from stratagem.ps.server.store import Store
from stratagem.ps.serving import Serving
from stratagem.transport.keys import Keys, holder_for
from stratagem.transport.server import MessageServer

gates: dict[str, Any] = {}
"""What functions on workers wait for: they reach this module by its name, while their own travels by value."""


@contextlib.contextmanager
def running_servers(number: int = 2) -> Iterator[Servers]:
    """Start parameter servers; yield what asks them."""
    services = [Service(Store()) for _ in range(number)]
    listening = [MessageServer("127.0.0.1:0", service, keys=None) for service in services]
    servers = Servers([server.address for server in listening])
    try:
        yield servers
    finally:
        servers.close()
        for server in listening:
            server.close()
        for service in services:
            service.close()


def keys_of(holder: str, workers: int = 1) -> Keys | None:
    """Return the keys that a task of a cluster of this process has."""
    return own_keys(holder, ClusterSpec({"worker": [f"a:{1 + index}" for index in range(workers)]}), {})


def serve(
    job: str, index: int, address: str = "127.0.0.1:0", servers: Sequence[str] = (), workers: int = 1, **options: Any
) -> Serving:
    """Serve as a task of a cluster of this process, with the keys of the process."""
    keys = keys_of(holder_for(job, index), workers)
    return Serving(Task(job, index), address, servers, workers, keys=keys, **options)


@contextlib.contextmanager
def small_cluster(workers: int = 1) -> Iterator[SimpleClusterResolver]:
    """Start two parameter servers and some workers, as TensorFlow's tutorial does; yield who is in the cluster."""
    servings = [serve("ps", index, workers=workers) for index in range(2)]
    jobs = {"ps": [serving.address for serving in servings]}
    servings += [serve("worker", index, servers=jobs["ps"], workers=workers) for index in range(workers)]
    jobs["worker"] = [serving.address for serving in servings[2:]]
    try:
        yield SimpleClusterResolver(ClusterSpec(jobs))
    finally:
        for serving in reversed(servings):
            serving.stop()


def until_lost(call: Callable[[], object]) -> UnavailableError:
    """Call something until it says that a server was lost."""
    while True:
        try:
            call()
        except UnavailableError as error:
            return error


class Cluster:
    """Parameter servers and a worker in threads of this process."""

    def __init__(self, servers: int = 2, clock: Clock | None = None) -> None:
        clock = clock or Clock()
        self.servers = [serve("ps", index, clock=clock) for index in range(servers)]
        self.addresses = [serving.address for serving in self.servers]
        self.worker = serve("worker", 0, servers=self.addresses, clock=clock)
        self.resolver = SimpleClusterResolver(ClusterSpec({"ps": self.addresses, "worker": [self.worker.address]}))

    def lose(self, index: int) -> None:
        self.servers[index].stop()

    def start_again(self, index: int) -> None:
        self.servers[index] = serve("ps", index, self.addresses[index])

    def close(self) -> None:
        for serving in (self.worker, *self.servers):
            serving.stop()
