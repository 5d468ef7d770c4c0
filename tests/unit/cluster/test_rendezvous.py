"""The meeting between threads of this process, which stand for tasks."""

from __future__ import annotations

import errno
import json
import select
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from stratagem.cluster import door, reception, rendezvous
from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.rendezvous import Meeting, gather, visit
from stratagem.cluster.secret import Handshake
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError, StratagemError
from stratagem.launch.machine import free_ports

VERSIONS = {"stratagem": "1", "jax": "2"}
SECONDS = 10.0
SECRET = b"the secret of this cluster"


def cluster(workers: int) -> ClusterSpec:
    return ClusterSpec({"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]})


def hello(spec: ClusterSpec, index: int, **versions: str) -> Hello:
    return Hello(Peer(Task("worker", index), "host", 100 + index), spec, VERSIONS | versions)


class LeapingClock(Clock):
    """Stands still, and leaps to where it is told."""

    time = 0.0

    def now(self) -> float:
        return self.time


def meet(*hellos: Hello, deadline: Deadline | None = None, secret: bytes = SECRET) -> list[Future[Meeting]]:
    """Let all of them meet; return what came of it for each."""
    with ThreadPoolExecutor(len(hellos)) as threads:
        first = threads.submit(gather, hellos[0], deadline or Deadline(SECONDS), secret)
        futures = [first, *(threads.submit(visit, own, Deadline(SECONDS), secret) for own in hellos[1:])]
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


def test_who_is_missing_is_named_to_all_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, clock = cluster(3), LeapingClock()

    def arrive(own: Hello, other: Hello) -> None:
        clock.time = SECONDS

    monkeypatch.setattr(reception, "check_fit", arrive)
    found = errors(meet(hello(spec, 0), hello(spec, 1), deadline=Deadline(SECONDS, clock)))

    assert [type(error) for error in found] == [StartupError] * 2
    missing = f"1 of 3 tasks did not reach worker 0 within 10 s: worker 2 ({spec.task_address('worker', 2)})."
    assert [str(error).startswith(missing) for error in found] == [True] * 2


def test_who_is_waited_for_is_said_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, clock = cluster(2), LeapingClock()

    class Busy(reception.Reception):
        """Eight seconds pass each time it has served."""

        def serve(self, seconds: float) -> None:
            clock.time += 8.0

    monkeypatch.setattr(rendezvous, "Reception", Busy)
    with pytest.raises(StartupError):
        gather(hello(spec, 0), Deadline(40.0, clock))

    first, second = (spec.task_address("worker", index) for index in range(2))
    waits = f"stratagem: worker 0 waits for worker 1 ({second})"
    assert capsys.readouterr().err.splitlines() == [
        f"stratagem: Started server with target: grpc://{first}",
        f"{waits}, 8 of 40 s.",
        f"{waits}, 24 of 40 s.",
    ]


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


WRONG_CLUSTER = Hello(Peer(Task("worker", 1), "x", 1), ClusterSpec({"worker": ["a:1", "b:2"]}), {})


def sealed(hello: Hello) -> Callable[[socket.socket], None]:
    """Return who shakes hands without a secret, and says this hello."""

    def say(connection: socket.socket) -> None:
        connection.sendall(b'{"nonce": "1f"}\n')
        with connection.makefile("rb") as answers:
            nonce = json.loads(answers.readline())["nonce"]
            answers.readline()
            connection.sendall(Handshake(b"", "1f", nonce).seal("hello", hello.encode()))

    return say


def raw(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


@pytest.mark.parametrize("secret", [SECRET, b""])
@pytest.mark.parametrize(
    "say",
    [
        raw(b"GET / HTTP/1.1\n"),
        raw(b"\xff\xfe\n"),
        raw(b'{"nonce": 3}\n'),
        raw(b'{"nonce": ""}\n'),
        raw(b'{"nonce": "' + b"a" * 1000 + b'"}\n'),
        raw(b'{"peer":["worker",1,"x",Infinity],"cluster":{"worker":["a:1","b:2"]},"versions":{}}\n'),
        raw(b'{"nonce": "1f"}\n{"body": "{}", "proof": ""}\n'),
        raw(b'{"nonce": "1f"}\n' + b"[" * 100_000 + b"\n"),
        sealed(WRONG_CLUSTER),
    ],
)
def test_a_stranger_does_not_disturb(say: Callable[[socket.socket], None], secret: bytes) -> None:
    spec = cluster(2)
    host, _, port = spec.task_address("worker", 0).partition(":")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS), secret)
        with connected(host, int(port)) as stranger:
            say(stranger)
            other = visit(hello(spec, 1), Deadline(SECONDS), secret)
    close([first.result(), other])


def test_connections_that_say_nothing_make_room(caplog: pytest.LogCaptureFixture) -> None:
    spec = cluster(2)
    host, _, port = spec.task_address("worker", 0).partition(":")
    with ThreadPoolExecutor(1) as threads, ExitStack() as held:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS), SECRET)
        for _ in range(door.MAX_STRANGERS + 40):
            held.enter_context(connected(host, int(port))).sendall(b'{"nonc')
        other = visit(hello(spec, 1), Deadline(SECONDS), SECRET)
    close([first.result(), other])
    (record,) = caplog.records  # one line for all of them
    assert record.message.startswith("worker 0: a connection from 127.0.0.1 is closed: it had sent no hello when many")


class FullListener(socket.socket):
    """Has no descriptor for another connection until somebody says so."""

    is_full = True
    calls = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.calls += 1
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.mark.parametrize("pause", [1000.0, 0.0])
def test_who_knocks_where_no_descriptor_is_left_costs_no_time(
    pause: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "PAUSE_SECONDS", pause)
    desk = reception.Reception(hello(cluster(2), 0), SECRET)
    listener = FullListener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    desk.open(listener)
    with socket.create_connection(listener.getsockname()) as guest:
        for _ in range(20):
            desk.serve(0.0)
        assert listener.calls == (1 if pause else 20)
        listener.is_full = False
        if not pause:
            guest.sendall(b"GET /\n")
            while guest not in select.select([guest], [], [], 0.0)[0]:
                desk.serve(SECONDS)
            assert guest.recv(1) == b""  # let in, and turned away
    desk.close()
    assert caplog.messages[0] == "worker 0 has no file descriptor left for a connection; it tries again."


def test_where_descriptors_are_few_the_longest_silent_goes() -> None:
    desk = reception.Reception(hello(cluster(2), 0), SECRET)
    listener = FullListener()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.is_full = False
    desk.open(listener)
    with socket.create_connection(listener.getsockname()) as first:
        desk.serve(SECONDS)
        listener.is_full = True
        with socket.create_connection(listener.getsockname()):
            desk.serve(SECONDS)
            assert first.recv(1) == b""
    desk.close()


def test_a_hello_has_a_deadline(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(door, "HELLO_SECONDS", 0.01)
    spec = cluster(2)
    host, _, port = spec.task_address("worker", 0).partition(":")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS), SECRET)
        with connected(host, int(port)) as stranger:
            assert stranger.recv(1) == b""  # closed by the other side
        monkeypatch.setattr(door, "HELLO_SECONDS", SECONDS)
        close([visit(hello(spec, 1), Deadline(SECONDS), SECRET), first.result()])
    assert "it sent no hello within 0.01 s" in caplog.text


@pytest.mark.parametrize(("ours", "theirs"), [(SECRET, b"another secret, as long"), (SECRET, b""), (b"", SECRET)])
def test_a_task_with_another_secret_hears_it_and_the_others_go_on(ours: bytes, theirs: bytes) -> None:
    spec = cluster(2)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS), ours)
        with pytest.raises(ClusterError, match=r"(?s)does not know the secret that .*Set STRATAGEM_SECRET, or"):
            visit(hello(spec, 1), Deadline(SECONDS), theirs)
        close([visit(hello(spec, 1), Deadline(SECONDS), ours), first.result()])


@pytest.mark.parametrize(
    ("other", "kind", "said"),
    [
        (lambda spec: WRONG_CLUSTER, ClusterError, "describe different clusters"),
        (lambda spec: hello(spec, 1, jax="3"), PeerError, "runs {'stratagem': '1', 'jax': '3'}"),
        (lambda spec: hello(spec, 0), ClusterError, "Two processes say that they are worker 0"),
    ],
)
def test_without_a_secret_a_task_that_does_not_fit_hears_it_alone(
    other: Callable[[ClusterSpec], Hello], kind: type[StratagemError], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = cluster(2)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(gather, hello(spec, 0), Deadline(SECONDS))
        host, _, port = spec.task_address("worker", 0).partition(":")
        with connected(host, int(port)) as connection:
            sealed(other(spec))(connection)
            answer = json.loads(json.loads(connection.makefile("rb").readline())["body"])
        assert (answer["error"], said in answer["message"]) == (kind.__name__, True)
        close([visit(hello(spec, 1), Deadline(SECONDS)), first.result()])
    assert "is turned away, and may come back" in caplog.text


def close(meetings: list[Meeting]) -> None:
    """Close the connections of a meeting of two, and see that it was theirs."""
    for meeting in meetings:
        assert [peer.pid for peer in meeting.peers] == [100, 101]
        for connection, _ in meeting.connections.values():
            connection.close()


def test_process_0_listens_on_its_own_address_alone() -> None:
    own = ClusterSpec({"worker": [f"127.0.0.1:{free_ports(1)[0]}"]})
    (listener,) = reception.listen(Hello(Peer(Task("worker", 0), "h", 1), own, {}))
    assert listener.getsockname()[0] == "127.0.0.1"
    listener.close()
