"""Messages of tasks that meet, and the errors of tasks that do not fit together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stratagem.cluster.secret import read_object
from stratagem.cluster.spec import ClusterSpec, Task
from stratagem.core.errors import ClusterError, PeerError


@dataclass(frozen=True)
class Peer:
    """A process of the running cluster.

    Args:
        task: Which task it is.
        host: Name of its machine.
        pid: Its process number there.

    Example:
        >>> str(Peer(Task("worker", 1), "node7", 4711))
        'worker 1 (host node7, pid 4711)'
    """

    task: Task
    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.task} (host {self.host}, pid {self.pid})"


@dataclass(frozen=True)
class Hello:
    """The message with which a task introduces itself.

    Args:
        peer: Task, host and pid.
        cluster: The cluster that it was given.
        versions: Version of each library that must be the same everywhere.
    """

    peer: Peer
    cluster: ClusterSpec
    versions: Mapping[str, str]

    def encode(self) -> str:
        """Return the message as text."""
        fields = {"peer": write_peer(self.peer), "cluster": self.cluster.as_dict(), "versions": self.versions}
        return json.dumps(fields)

    @classmethod
    def decode(cls, text: str, known: ClusterSpec | None = None) -> Hello:
        """Return the message in a text; `ValueError` when it is none.

        Args:
            text: The message.
            known: A cluster that the message may name. It is not read again then: a thousand tasks that name a thousand
                addresses each would take process 0 most of a minute.
        """
        message = read_object(text.encode("utf-8", "surrogatepass"))
        try:
            named = message["cluster"]
            cluster = known if known is not None and named == known.as_dict() else ClusterSpec(named)
            return cls(read_peer(message["peer"]), cluster, dict(message["versions"]))
        except (TypeError, KeyError) as error:  # a stranger may send anything
            raise ValueError(f"not a hello: {error}") from None


def check_fit(own: Hello, other: Hello) -> None:
    """Refuse two tasks that could not train together.

    Args:
        own: What process 0 would say.
        other: What another task said.

    Raises:
        ClusterError: They describe different clusters.
        PeerError: They run different versions.
    """
    if own.cluster != other.cluster:
        raise ClusterError(
            f"{own.peer} and {other.peer} describe different clusters:\n"
            f"    {own.peer.task}: {json.dumps(own.cluster.as_dict())[:2000]}\n"
            f"    {other.peer.task}: {json.dumps(other.cluster.as_dict())[:2000]}",
            'Give every task the same "cluster" in TF_CONFIG; only "task" differs.',
        )
    if own.versions != other.versions:
        raise PeerError(
            f"{own.peer} runs {dict(own.versions)}, {other.peer} runs {dict(other.versions)}.",
            "They would compile different programs and wait for each other.",
            "Install the same versions on every machine.",
        )


def double_error(first: Peer, second: Peer) -> ClusterError:
    """Return the error of two processes that are the same task."""
    return ClusterError(
        f"Two processes say that they are {second.task}: {first} and {second}.",
        "One task would be missing, and data would be read twice.",
        'Give every process its own "index" in TF_CONFIG.',
    )


def to_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


def write_peer(peer: Peer) -> list[str | int]:
    """Return a peer as a list for JSON."""
    return [peer.task.type, peer.task.index, peer.host, peer.pid]


def read_peer(fields: Any) -> Peer:
    """Return the peer that `write_peer` wrote; `ValueError` or `TypeError` when it is none."""
    task_type, index, host, pid = fields
    if type(pid) is not int or not isinstance(host, str):
        raise ValueError(f"{host!r} is not a host, or {pid!r} is not the number of a process")
    return Peer(Task(task_type, index), host, pid)
