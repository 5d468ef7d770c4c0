"""The meeting between threads of this process, which stand for tasks."""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.rendezvous import Meeting, bind_host, gather, visit
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError, StratagemError
from stratagem.launch.machine import free_ports

VERSIONS = {"stratagem": "1", "jax": "2"}
SECONDS = 10.0


def cluster(workers: int) -> ClusterSpec:
    return ClusterSpec({"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]})


def hello(spec: ClusterSpec, index: int, **versions: str) -> Hello:
    return Hello(Peer(Task("worker", index), "host", 100 + index), spec, VERSIONS | versions)


class CountingClock(Clock):
    """Leaps to the end of all deadlines once it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def now(self) -> float:
        self.looks -= 1
        return 0.0 if self.looks >= 0 else 1e6


def meet(*hellos: Hello, deadline: Deadline | None = None) -> list[Future[Meeting]]:
    """Let all of them meet; return what came of it for each."""
    with ThreadPoolExecutor(len(hellos)) as threads:
        first = threads.submit(gather, hellos[0], deadline or Deadline(SECONDS))
        futures = [first, *(threads.submit(visit, own, Deadline(SECONDS)) for own in hellos[1:])]
    for future in futures:
        for connection, _ in ({} if future.exception() else future.result().connections).values():
            connection.close()
    return futures


def errors(futures: list[Future[Meeting]]) -> list[StratagemError]:
    found = [future.exception() for future in futures]
    assert all(isinstance(error, StratagemError) for error in found)
    return [error for error in found if isinstance(error, StratagemError)]


def test_all_learn_of_all_and_keep_their_connections() -> None:
    spec = cluster(3)
    meetings = [future.result() for future in meet(*(hello(spec, index) for index in range(3)))]

    assert [[peer.pid for peer in meeting.peers] for meeting in meetings] == [[100, 101, 102]] * 3
    assert [sorted(meeting.connections) for meeting in meetings] == [[1, 2], [0], [0]]


def test_who_is_missing_is_named_to_all_that_came() -> None:
    spec = cluster(3)
    # When the deadline is made; then twice until a task connects, and twice until it has said hello.
    found = errors(meet(hello(spec, 0), hello(spec, 1), deadline=Deadline(SECONDS, CountingClock(5))))

    assert [type(error) for error in found] == [StartupError] * 2
    missing = f"1 of 3 tasks did not reach worker 0 within 10 s: worker 2 ({spec.task_address('worker', 2)})."
    assert [str(error).startswith(missing) for error in found] == [True] * 2


def test_other_versions_are_an_error_on_both() -> None:
    spec = cluster(2)
    found = errors(meet(hello(spec, 0), hello(spec, 1, jax="3")))

    assert [type(error) for error in found] == [PeerError] * 2
    assert "worker 1 (host host, pid 101) runs {'stratagem': '1', 'jax': '3'}" in str(found[1])


def test_other_clusters_are_an_error_on_both() -> None:
    spec = cluster(2)
    other = ClusterSpec({"worker": [*spec.job_tasks("worker"), "127.0.0.1:1"]})  # type: ignore[list-item]  # pyright: ignore
    found = errors(meet(hello(spec, 0), hello(other, 1)))

    assert [type(error) for error in found] == [ClusterError] * 2
    assert "describe different clusters" in str(found[0])


def test_one_task_twice_is_an_error_on_all() -> None:
    spec = cluster(3)
    found = errors(meet(hello(spec, 0), hello(spec, 1), hello(spec, 1)))

    assert [type(error) for error in found] == [ClusterError] * 3
    assert {"Two processes say that they are worker 1" in str(error) for error in found} == {True}


def test_a_port_that_is_taken_is_named() -> None:
    spec = cluster(2)
    port = int(spec.task_address("worker", 0).rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(StartupError, match=f"worker 0 cannot listen on port {port} of 127.0.0.1: the port is in use"),
    ):
        gather(hello(spec, 0), Deadline(SECONDS))


def connected(host: str, port: int) -> socket.socket:
    """Return a connection, as soon as somebody listens."""
    deadline = Deadline(SECONDS)
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            assert not deadline.expired


def test_a_stranger_does_not_disturb() -> None:
    spec = cluster(2)
    host, _, port = spec.task_address("worker", 0).partition(":")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS))
        with connected(host, int(port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\n")
            other = visit(hello(spec, 1), Deadline(SECONDS))
    for meeting in (first.result(), other):
        assert [peer.task.index for peer in meeting.peers] == [0, 1]
        for connection, _ in meeting.connections.values():
            connection.close()


@pytest.mark.parametrize(("host", "bound"), [("localhost", True), ("127.0.0.1", True), ("no-such-host.invalid", False)])
def test_only_names_of_this_machine_bind_to_themselves(host: str, bound: bool) -> None:
    assert (bind_host(host) == host) == bound
