"""The coordinator of another machine, as a launcher sees it whose processes take part in the run."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Final

from stratagem.cluster.lifeline import notice_dead_host
from stratagem.core import exits
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import StratagemError
from stratagem.core.log import logger
from stratagem.elastic.frozen import state_in_words
from stratagem.elastic.hello import LauncherHello
from stratagem.elastic.launchers import Ended, Status, Tasks
from stratagem.elastic.limits import Limits
from stratagem.elastic.reaching import reach
from stratagem.elastic.wire import Wire

LOOK_SECONDS: Final = 0.1
"""Seconds between two looks at whether processes of this machine are frozen."""

SEND_SECONDS: Final = 10.0
"""Seconds that the coordinator may take to read a message; after it, it counts as gone."""

_GONE: Final = (
    "The coordinator, which is the launcher of node 0, is gone, or the network is down. Look at its output, and start "
    "the launchers of all nodes again."
)


class RemoteCoordinator:
    """The connection to the coordinator of a run whose node 0 is another machine.

    Args:
        address: Where the coordinator listens, as host:port.
        secret: What both sides prove that they know.
        hello: What this launcher says.
        pids: Returns the processes of this machine.
        kill: Kills one of them. Called in a thread of this object.
        say: Writes a line to the terminal.
        limits: Those of the run.
        clock: Where time comes from.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        hello: LauncherHello,
        *,
        pids: Callable[[], Collection[int]],
        kill: Callable[[int], object],
        say: Callable[[str], object],
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address, self._secret, self._hello = address, secret, hello
        self._pids, self._kill, self._say = pids, kill, say
        self._limits, self._clock = limits or Limits(), clock or Clock()
        self._status = Status()
        self._is_stopped = False
        self._has_ended = threading.Event()
        self._frozen: dict[int, Deadline] = {}
        self._waiting: list[Ended] = []
        self._line: tuple[socket.socket, Wire] | None = None
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stratagem-elastic-launcher", daemon=True)

    def start(self) -> None:
        """Begin to reach the coordinator."""
        self._thread.start()

    @property
    def status(self) -> Status:
        """The standing of the run, as far as it was heard."""
        return self._status

    def ended(self, ended: Ended) -> None:
        """Tell what has become of a process of this machine. Any thread may.

        Args:
            ended: How it has ended.
        """
        with self._sending:
            self._waiting.append(ended)
        self._send_waiting()

    def show(self, tasks: Tasks) -> None:
        """Tell what the processes of this machine do, if there is a connection. Any thread may.

        Args:
            tasks: What each does, by its name, as JSON.
        """
        with self._sending, contextlib.suppress(OSError):
            if self._line is not None:
                connection, wire = self._line
                connection.sendall(wire.seal({"tasks": tasks}))

    def wait(self, seconds: float) -> int | None:
        """Wait for the end of the run; return the exit code, or None when it has not ended in time.

        Args:
            seconds: How long to wait.
        """
        return self._status.code if self._has_ended.wait(seconds) else None

    def stop(self) -> None:
        """End the connection."""
        self._is_stopped = True
        self._thread.join(10.0)

    def _send_waiting(self) -> None:
        """Send what is to be told, if there is a connection. That it is gone is heard where it is listened to."""
        with self._sending, contextlib.suppress(OSError):
            while self._waiting and self._line is not None:
                connection, wire = self._line
                connection.sendall(wire.seal(asdict(self._waiting[0])))
                del self._waiting[0]

    def _run(self) -> None:
        try:
            name = f"The launcher of host {self._hello.launches_on}"
            deadline, said = Deadline(self._limits.start, self._clock), self._hello.encode()
            connection, wire, _ = reach(self._address, name, said, self._secret, deadline, lambda: self._is_stopped)
            with connection:
                connection.settimeout(SEND_SECONDS)
                notice_dead_host(connection)
                with self._sending:
                    self._line = connection, wire
                self._send_waiting()
                self._listen(connection, wire)
        except StratagemError as error:
            if not self._is_stopped:
                self._say(str(error))
        except (OSError, ValueError) as error:
            logger.debug("The connection to the coordinator has ended: %r", error)
        finally:
            with self._sending:
                self._line = None
            if self._status.code is None:
                if not self._is_stopped:
                    self._say(_GONE)
                self._status = Status(is_closed=True, code=exits.PEER_LOST)
            self._has_ended.set()

    def _listen(self, connection: socket.socket, wire: Wire) -> None:
        data = b""
        while not self._is_stopped:
            for message in wire.feed(data):
                if message.get("kill") in self._pids():
                    self._kill(message["kill"])
                elif "kill" not in message:
                    self._status = Status.decode(message.get("status"))
            if self._status.code is not None:
                return
            self._report_frozen()
            data = b""
            if select.select([connection], [], [], LOOK_SECONDS)[0]:
                data = connection.recv(1 << 16)
                if not data:
                    return

    def _report_frozen(self) -> None:
        """Report processes that a signal has stopped, after as long as the coordinator would suspect its own."""
        states = {pid: state_in_words(pid) for pid in self._pids()}
        self._frozen = {
            pid: self._frozen.get(pid) or Deadline(self._limits.suspect, self._clock)
            for pid, state in states.items()
            if state is not None
        }
        for pid, deadline in list(self._frozen.items()):
            state = states[pid]
            if deadline.expired and state is not None:
                self._frozen[pid] = Deadline(self._limits.silent, self._clock)
                self.ended(Ended(pid, state, has_exited=False))
