"""The meeting before JAX starts: every task says hello to process 0, which lets all go on together.

JAX's own start-up ends the process inside C++ when a peer is missing (`Terminating process because the JAX
distributed service detected fatal errors`, seen with jaxlib 0.10), without a word about who is missing, and
trusts all tasks to mean the same cluster. So process 0 listens on its own address first. Each task sends one
line of JSON, `Hello`, and waits for one line back: the peers, or an error that all tasks raise alike. Process 0
then frees the port, and JAX's service starts on it. The connections stay open: `lifeline`.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple, cast

from stratagem.cluster.hello import Hello, Peer, check_fit, double_error, read_peer, to_line, write_peer
from stratagem.cluster.spec import ClusterSpec, Task, split_address
from stratagem.core import environment as env
from stratagem.core.clock import Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError, StratagemError, name_some

MAX_LINE: Final = 4 * 1024 * 1024
"""Longest message in bytes: a cluster of ten thousand tasks fits."""

MAX_STRANGERS: Final = 64
"""Connections kept at a time beyond the tasks expected."""

CONNECT_SECONDS: Final = 10.0
"""Longest try of one connection; a lost packet must not eat the whole deadline."""

FAREWELL_SECONDS: Final = 10.0
"""Longest time to hand the answer to one task, and to wait for an answer that is due."""

ERRORS: Final[Mapping[str, type[StratagemError]]] = {
    error.__name__: error for error in (ClusterError, PeerError, StartupError)
}


class Meeting(NamedTuple):
    """The result of the meeting.

    Args:
        peers: All processes, in order of process index.
        connections: The connections on which they said hello, still open, each with what has been read beyond the
            hello, by process index. Process 0 has one to every other process, the others one to process 0.
    """

    peers: tuple[Peer, ...]
    connections: dict[int, tuple[socket.socket, bytes]]


def gather(own: Hello, deadline: Deadline) -> Meeting:
    """Wait on process 0 until every other training task said hello, and let all go on.

    Args:
        own: What process 0 itself would say.
        deadline: When to give up.

    Returns:
        All peers, this one first, and the connections to them.

    Raises:
        StartupError: The port is busy, or tasks are missing at the deadline.
        ClusterError: The tasks describe different clusters, or two processes are the same task.
        PeerError: The tasks run different versions.
    """
    reception = _Reception(own)
    with ExitStack() as closing:
        closing.callback(reception.close)
        for listener in _listen(own):
            reception.open(listener)
        try:
            while reception.missing:
                if deadline.expired:
                    raise reception.missing_error(deadline)
                reception.serve(deadline.remaining)
        except StratagemError as error:
            reception.dismiss(_error_line(error))
            raise
        peers = reception.peers
        # Nobody may reach this listener after the answer: the next one on the port is JAX's service.
        reception.close_listeners()
        reception.dismiss(to_line({"peers": [write_peer(peer) for peer in peers]}))
        return Meeting(peers, reception.keep_connections())


class _Reception:
    """The listening side: sockets, what they sent so far, and who said hello on which."""

    def __init__(self, own: Hello) -> None:
        self._own = own
        self._expected = own.cluster.training_tasks[1:]
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._unread: dict[socket.socket, bytes] = {}
        self._arrived: dict[Task, tuple[Hello, socket.socket]] = {}

    @property
    def missing(self) -> list[Task]:
        return [task for task in self._expected if task not in self._arrived]

    @property
    def peers(self) -> tuple[Peer, ...]:
        return (self._own.peer, *(self._arrived[task][0].peer for task in self._expected))

    def open(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self, seconds: float) -> None:
        """Handle what happens next, for at most `seconds`."""
        for key, _ in self._selector.select(seconds):
            handle: Callable[[socket.socket], None] = key.data
            handle(cast(socket.socket, key.fileobj))

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # gone again
            return
        if len(self._unread) >= len(self._expected) + MAX_STRANGERS:
            connection.close()
            return
        connection.setblocking(False)
        self._unread[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        line = self._unread[connection] + data
        # A task that died and came back closes its first connection; a stranger sends too much.
        if not data or len(line) > MAX_LINE:
            self._drop(connection)
            return
        self._unread[connection] = line
        if line.endswith(b"\n"):
            self._unread[connection] = b""
            self._greet(line, connection)

    def _greet(self, line: bytes, connection: socket.socket) -> None:
        try:
            hello = Hello.decode(line)
        except ValueError:
            self._drop(connection)  # a health check or a port scanner
            return
        earlier = self._arrived.get(hello.peer.task)
        self._arrived[hello.peer.task] = (hello, connection)
        check_fit(self._own, hello)
        if earlier is not None:
            self._arrived[hello.peer.task] = earlier
            error = double_error(earlier[0].peer, hello.peer)
            _send(connection, _error_line(error))  # the first of the two hears it with all others
            raise error
        if hello.peer.task not in self._expected:
            raise double_error(self._own.peer, hello.peer)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._unread.pop(connection, None)
        self._arrived = {task: entry for task, entry in self._arrived.items() if entry[1] is not connection}
        connection.close()

    def missing_error(self, deadline: Deadline) -> StartupError:
        cluster, missing = self._own.cluster, self.missing
        named = [f"{task} ({cluster.address_of(task)})" for task in missing]
        own = self._own.peer.task
        return StartupError(
            f"{len(missing)} of {len(self._expected) + 1} tasks did not reach {own} within {deadline.seconds:g} s: "
            f"{name_some(named)}.",
            "Training needs every task of the cluster from the first step.",
            f"Look at the output of {name_some(map(str, missing))}; see that they can reach "
            f"{cluster.address_of(own)}. If they only start slowly, set {env.STARTUP_TIMEOUT} "
            "to more seconds.",
        )

    def dismiss(self, line: bytes) -> None:
        """Send the last word to every task that said hello."""
        for _, connection in self._arrived.values():
            _send(connection, line)

    def keep_connections(self) -> dict[int, tuple[socket.socket, bytes]]:
        """Return the connections to the peers, by process index; closing them is the caller's business."""
        kept = {}
        for index, task in enumerate(self._expected, start=1):
            _, connection = self._arrived[task]
            self._selector.unregister(connection)
            kept[index] = (connection, self._unread.pop(connection))
        return kept

    def close_listeners(self) -> None:
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        self.close_listeners()
        for connection in list(self._unread):
            self._drop(connection)
        self._selector.close()


def visit(own: Hello, deadline: Deadline) -> Meeting:
    """Say hello to process 0 and wait until it lets all go on.

    Name look-ups and connections that fail are tried again until the deadline: in a cluster that is
    starting, names come late and so does process 0. (One look-up may take as long as the system's resolver.)

    Args:
        own: What this task says.
        deadline: When to give up reaching process 0. Once reached, it has the same time for all to come.

    Returns:
        All peers, and the connection to process 0.

    Raises:
        StartupError: Process 0 could not be reached, or other tasks did not arrive.
        ClusterError: The tasks describe different clusters, or two processes are the same task.
        PeerError: The tasks run different versions.
    """
    pause, state = 0.05, "it did not answer"
    while not deadline.expired:
        try:
            with ExitStack() as closing:
                connection = closing.enter_context(_connect(own.cluster, deadline))
                connection.sendall(own.encode())
                # From here process 0 decides: it names the missing tasks when its own time, which may have begun
                # later than ours, is over. Leaving earlier would only make this task missing too.
                answer = _read_answer(connection, Deadline(deadline.seconds + FAREWELL_SECONDS, deadline.clock))
                closing.pop_all()
                return answer
        except TimeoutError:
            state = "it did not answer"
        except OSError as error:
            state = error.strerror or str(error)
        deadline.clock.wait(min(pause, deadline.remaining))
        pause = min(2 * pause, 1.0)
    raise _unreachable(own, deadline, state)


def await_service(own: Hello, deadline: Deadline) -> None:
    """Wait until process 0 listens again, now with JAX's service.

    A JAX client that comes too early waits a second before it tries again.

    Args:
        own: What this task said.
        deadline: When to give up.

    Raises:
        StartupError: Nobody listens there at the deadline.
    """
    while not deadline.expired:
        try:
            _connect(own.cluster, deadline).close()
            return
        except OSError:
            deadline.clock.wait(min(0.01, deadline.remaining))
    raise _unreachable(own, deadline, "it ended after all tasks had met")


def _connect(cluster: ClusterSpec, deadline: Deadline) -> socket.socket:
    host_and_port = split_address(cluster.address_of(cluster.training_tasks[0]))
    return socket.create_connection(host_and_port, timeout=max(0.01, min(CONNECT_SECONDS, deadline.remaining)))


def _read_answer(connection: socket.socket, deadline: Deadline) -> Meeting:
    line = b""
    while b"\n" not in line:
        connection.settimeout(max(0.01, deadline.remaining))
        data = connection.recv(65536)
        line += data
        if not data or len(line) > MAX_LINE:
            raise ConnectionError("it was reached, and closed the connection without a word")
    line, _, beyond = line.partition(b"\n")
    try:
        answer = json.loads(line)
        if "error" not in answer:
            return Meeting(tuple(read_peer(peer) for peer in answer["peers"]), {0: (connection, beyond)})
        error = ERRORS[answer["error"]](answer["message"])
    except (ValueError, TypeError, KeyError):
        raise ConnectionError("another program listens there, or the cluster started without this task") from None
    raise error


def _unreachable(own: Hello, deadline: Deadline, state: str) -> StartupError:
    first = own.cluster.training_tasks[0]
    address = own.cluster.address_of(first)
    return StartupError(
        f"{own.peer} could not start with {first} at {address} within {deadline.seconds:g} s: {state}.",
        f"{first} is where the tasks of a cluster meet.",
        f"See that {first} runs and that {address} can be reached from host {own.peer.host} (name, port, "
        f"firewall). If it only starts slowly, set {env.STARTUP_TIMEOUT} to more seconds.",
    )


def bind_host(host: str) -> str:
    """Return where process 0 must listen so that `host` reaches it, and no wider than needed.

    Args:
        host: The host in process 0's own address.

    Returns:
        `host` itself when it means this machine only (localhost), otherwise "::" or "0.0.0.0", because
        the name may lead to a load balancer or one of several networks.
    """
    try:
        addresses = {ipaddress.ip_address(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        addresses = set()  # our own name may be known later than we start
    if addresses and all(address.is_loopback for address in addresses):
        return host
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def _listen(own: Hello) -> list[socket.socket]:
    task = own.peer.task
    host, port = split_address(own.cluster.address_of(task))
    bind = bind_host(host)
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for address in dict.fromkeys(info[4] for info in socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)):
        six = len(address) == 4
        family = socket.AF_INET6 if six else socket.AF_INET
        try:
            listeners.append(socket.create_server(address, family=family, backlog=512, dualstack_ipv6=bind == "::"))
        except OSError as error:
            failure = error
            if error.errno == errno.EADDRINUSE:
                break
    if listeners and (failure is None or failure.errno != errno.EADDRINUSE):
        return listeners  # of the addresses of "localhost", one may not exist on this machine
    for listener in listeners:
        listener.close()
    reason = "the port is in use" if failure and failure.errno == errno.EADDRINUSE else str(failure)
    raise StartupError(
        f"{task} cannot listen on port {port} of {host}: {reason}.",
        f"End the program that holds port {port} (a task of an earlier run?), or give {task} another port "
        "in the cluster of every task.",
    )


def _error_line(error: StratagemError) -> bytes:
    return to_line({"error": type(error).__name__, "message": str(error)})


def _send(connection: socket.socket, line: bytes) -> None:
    """Send the last message on a connection; a task that is gone is found by JAX or by its own deadline."""
    try:
        connection.settimeout(FAREWELL_SECONDS)
        connection.sendall(line)
    except OSError:
        pass
