"""Launchers of other machines, as the coordinator sees them.

A launcher tells what its processes do and what becomes of them, kills those that it is told to, and hears how the run
stands, so that it knows when to start another process.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from stratagem.core.log import logger
from stratagem.elastic.line import Line
from stratagem.elastic.wire import Wire
from stratagem.elastic.world import Member

_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Ended:
    """End of a process, as its launcher tells it.

    Args:
        pid: Its process number on its machine.
        how: In words that follow its name: "was ended by SIGKILL".
        error: What its program failed with; empty where it did not fail by itself.
        has_exited: Whether it has ended. If not, it is to be killed.
    """

    pid: int
    how: str
    error: str = ""
    has_exited: bool = True

    @classmethod
    def decode(cls, message: Mapping[str, Any]) -> Ended:
        """Return what a message of a launcher says; `ValueError` when it is none."""
        kinds = {"pid": int, "how": str, "error": str, "has_exited": bool}
        if {name: type(field) for name, field in message.items()} != kinds:
            raise ValueError("not a message of a launcher")
        return cls(**message)


@dataclass(frozen=True)
class Status:
    """Standing of the run, for those who start its processes.

    Args:
        is_forming: Whether a world forms, or has not completed its first step yet, so that cores are needed there.
        is_closed: Whether no process can take part any more.
        code: The exit code, once the run has ended.
    """

    is_forming: bool = False
    is_closed: bool = False
    code: int | None = None

    @classmethod
    def decode(cls, fields: Any) -> Status:
        """Return what a message of the coordinator says; `ValueError` when it is none."""
        if not isinstance(fields, dict) or fields.keys() != {"is_forming", "is_closed", "code"}:
            raise ValueError(f"{fields!r} is no status")
        code = fields["code"]
        if type(fields["is_forming"]) is not bool or type(fields["is_closed"]) is not bool:
            raise ValueError(f"{fields!r} is no status")
        if code is not None and type(code) is not int:
            raise ValueError(f"{fields!r} is no status")
        return cls(**fields)


Tasks = Mapping[str, Mapping[str, Any]]
"""Processes of a machine by name, with what each does, as JSON."""


def read_tasks(message: Mapping[str, Any]) -> Tasks:
    """Return what a message of a launcher says of its processes; `ValueError` when it does not."""
    tasks = message["tasks"]
    if len(message) > 1 or not isinstance(tasks, dict) or not all(isinstance(each, dict) for each in tasks.values()):
        raise ValueError("not a message of a launcher")
    return tasks


class Launchers:
    """Connections to the launchers of other machines.

    Args:
        selector: Tells when something can be read.
        ended: Hears what has become of a process: the name of its machine, and how.
        show: Hears what the processes of a machine do: its name, and nothing when its launcher is gone.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        ended: Callable[[str, Ended], object],
        show: Callable[[str, Tasks], object],
    ) -> None:
        self._selector = selector
        self._ended = ended
        self._show = show
        self._lines: dict[socket.socket, tuple[str, Line]] = {}
        self._status = Status()

    def admit(self, host: str, connection: socket.socket, wire: Wire) -> None:
        """Take in a launcher that has proved the secret.

        Args:
            host: The name of its machine.
            connection: The connection.
            wire: Its messages.
        """
        line = Line(connection, wire)
        self._lines[connection] = (host, line)
        self._selector.register(connection, selectors.EVENT_READ, self._serve)
        line.say({"status": asdict(self._status)})

    def tell(self, status: Status) -> None:
        """Tell all how the run stands, where it is news."""
        if status != self._status:
            self._status = status
            for _, line in self._lines.values():
                line.say({"status": asdict(status)})

    def kill(self, member: Member) -> None:
        """Let the launcher of a member's machine kill its process."""
        for host, line in self._lines.values():
            if host == member.host:
                line.say({"kill": member.pid})

    def close(self) -> None:
        """End the connections."""
        for connection in list(self._lines):
            self._part(connection)

    def _serve(self, connection: socket.socket) -> None:
        if connection not in self._lines:
            return
        host, line = self._lines[connection]
        line.flush()
        try:
            data = connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in line.wire.feed(data):
                if "tasks" in message:
                    self._show(host, read_tasks(message))
                else:
                    self._ended(host, Ended.decode(message))
        except ValueError as error:
            logger.warning("The launcher of %s is no longer heard: it sent what is no message (%s).", host, error)
            data = b""
        if not data:  # its processes are silent too if its machine is gone
            self._part(connection)

    def _part(self, connection: socket.socket) -> None:
        host, _ = self._lines.pop(connection)
        self._show(host, {})
        self._selector.unregister(connection)
        connection.close()
