"""The meeting before JAX starts: every task says hello to process 0, which lets all go on together.

JAX's own start-up ends the process inside C++ when a peer is missing (`Terminating process because the JAX
distributed service detected fatal errors`, seen with jaxlib 0.10), without a word about who is missing, and
trusts all tasks to mean the same cluster. So process 0 listens on its own address first. A task that connects sends a
nonce, and process 0 answers with its own and a proof that it knows the secret of the cluster (`secret`). Then the task
sends one line, `Hello`, and waits for one line back: the peers, or an error; both with such a proof. Process 0 then
frees the port, and JAX's service starts on it. The connections stay open: `lifeline`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from stratagem.cluster.door import FAREWELL_SECONDS
from stratagem.cluster.hello import Hello, Peer, read_peer, write_peer
from stratagem.cluster.knock import ANOTHER_PROGRAM, read_line, shake_hands
from stratagem.cluster.reception import Reception, error_answer, listen
from stratagem.cluster.resolver import master_url
from stratagem.cluster.secret import Handshake, UnprovenError, read_object
from stratagem.cluster.spec import ClusterSpec, split_address
from stratagem.core import environment as env
from stratagem.core.clock import Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError, StratagemError, name_some
from stratagem.core.log import announce

CONNECT_SECONDS: Final = 10.0
"""Longest try of one connection; a lost packet must not eat the whole deadline."""

FIRST_LINE_SECONDS: Final = 5.0
"""After so long a task says whom it waits for."""

LINES_SECONDS: Final = 10.0
"""Seconds between two such lines."""

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


def gather(own: Hello, deadline: Deadline, secret: bytes = b"") -> Meeting:
    """Wait on process 0 until every other training task said hello, and let all go on.

    Args:
        own: What process 0 itself would say.
        deadline: When to give up.
        secret: The secret of the cluster; empty where it has none.

    Returns:
        All peers, this one first, and the connections to them.

    Raises:
        StartupError: The port is busy, or tasks are missing at the deadline.
        ClusterError: The tasks describe different clusters, or two processes are the same task. Without a secret it is
            raised in that task alone, and this one goes on waiting: anybody could say so.
        PeerError: The tasks run different versions. The same holds.
    """
    reception = Reception(own, secret)
    waiting = _Waiting(deadline)
    with ExitStack() as closing:
        closing.callback(reception.close)
        for listener in listen(own):
            reception.open(listener)
        announce(f"Started server with target: {master_url(own.cluster.address_of(own.peer.task), 'grpc')}")
        try:
            while not reception.is_complete:
                if deadline.expired:
                    raise reception.missing_error(deadline)
                reception.serve(waiting.seconds)
                if waiting.is_due:
                    waiting.say(f"{own.peer.task} waits for {name_some(reception.named_missing)}")
        except StratagemError as error:
            reception.dismiss(error_answer(error))
            raise
        peers = reception.peers
        # Nobody may reach this listener after the answer: the next one on the port is JAX's service.
        reception.close_listeners()
        reception.dismiss({"peers": [write_peer(peer) for peer in peers]})
        return Meeting(peers, reception.keep_connections())


class _Waiting:
    """Lines that say every few seconds whom a task waits for."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._next = Deadline(FIRST_LINE_SECONDS, deadline.clock)

    @property
    def seconds(self) -> float:
        """Seconds until the next line or the deadline."""
        return min(self._next.remaining, self._deadline.remaining)

    @property
    def is_due(self) -> bool:
        """Whether it is time to say it."""
        return self._next.expired and not self._deadline.expired

    def say(self, what: str) -> None:
        """Say it, and how much of the time has gone."""
        total = self._deadline.seconds
        announce(f"{what}, {total - self._deadline.remaining:.0f} of {total:g} s.")
        self._next = Deadline(LINES_SECONDS, self._deadline.clock)


def visit(own: Hello, deadline: Deadline, secret: bytes = b"") -> Meeting:
    """Say hello to process 0 and wait until it lets all go on.

    Name look-ups and connections that fail are tried again until the deadline: in a cluster that is
    starting, names come late and so does process 0. (One look-up may take as long as the system's resolver.)

    Args:
        own: What this task says.
        deadline: When to give up reaching process 0. Once reached, it has the same time for all to come.
        secret: The secret of the cluster; empty where it has none.

    Returns:
        All peers, and the connection to process 0.

    Raises:
        StartupError: Process 0 could not be reached, or other tasks did not arrive.
        ClusterError: The tasks describe different clusters, their secrets differ, or two processes are the same task.
        PeerError: The tasks run different versions.
    """
    pause, state = 0.05, "it did not answer"
    waiting = _Waiting(deadline)
    first = own.cluster.training_tasks[0]
    while not deadline.expired:
        try:
            with ExitStack() as closing:
                connection = closing.enter_context(_connect(own.cluster, deadline))
                handshake, unread = _prove_each_other(own, connection, secret)
                connection.sendall(handshake.seal("hello", own.encode()))
                # From here process 0 decides: it names the missing tasks when its own time, which may have begun
                # later than ours, is over. Leaving earlier would only make this task missing too.
                until = Deadline(deadline.seconds + FAREWELL_SECONDS, deadline.clock)
                line, beyond = read_line(connection, unread, until)
                answer = _read_answer(handshake, line)
                closing.pop_all()
                return Meeting(answer, {0: (connection, beyond)})
        except TimeoutError:
            state = "it did not answer"
        except OSError as error:
            state = error.strerror or str(error)
        if waiting.is_due:
            waiting.say(f"{own.peer.task} tries to reach {first} ({own.cluster.address_of(first)}): {state}")
        deadline.clock.wait(min(pause, deadline.remaining))
        pause = min(2 * pause, 1.0)
    raise _unreachable(own, deadline, state)


def _prove_each_other(own: Hello, connection: socket.socket, secret: bytes) -> tuple[Handshake, bytes]:
    """Exchange proofs with process 0; return them with what was read beyond."""
    try:
        return shake_hands(connection, secret)
    except UnprovenError:
        task = own.cluster.training_tasks[0]
        raise ClusterError(
            f"{own.peer} reached {own.cluster.address_of(task)}, but the process there does not know the secret that "
            f"{'this task has' if secret else 'a task without one expects'}.",
            f"The process is another program, or {task} has another secret or none.",
            f"Set {env.SECRET}, or {env.SECRET_FILE}, to the same value in every task.",
        ) from None


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


def _read_answer(handshake: Handshake, line: bytes) -> tuple[Peer, ...]:
    try:
        answer = read_object(handshake.open("answer", line).encode())
        if "error" not in answer:
            return tuple(read_peer(peer) for peer in answer["peers"])
        error = ERRORS[answer["error"]](answer["message"])
    except (ValueError, TypeError, KeyError):
        raise ConnectionError(ANOTHER_PROGRAM) from None
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
