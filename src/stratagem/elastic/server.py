"""The coordinator of elastic training as a server: connections, time, and the protocol between them.

It lives in the launcher, never in a worker, so that every worker may die. One thread does everything; what others want
of it they leave in a queue.
"""

from __future__ import annotations

import dataclasses
import json
import selectors
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from stratagem.cluster.door import Door, Guest
from stratagem.cluster.reception import error_answer
from stratagem.core import exits
from stratagem.core.clock import Clock
from stratagem.core.errors import StratagemError
from stratagem.core.log import announce, logger
from stratagem.elastic.events import (
    Action,
    Event,
    Failed,
    FailedAlone,
    Form,
    Joined,
    KillMember,
    Leaving,
    Lost,
    Say,
    Stop,
    Tick,
)
from stratagem.elastic.frozen import find_stopped
from stratagem.elastic.hello import JoinHello, LauncherHello, check_joins, check_launches, read_hello
from stratagem.elastic.launchers import Ended, Launchers, Status, Tasks
from stratagem.elastic.line import Line
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.protocol import advance
from stratagem.elastic.state import Phase, Rules, State
from stratagem.elastic.store import OVER, Answer, WorldStore
from stratagem.elastic.wire import MAX_LINE, Wire, read_report, write_order
from stratagem.elastic.world import Member

TICK_SECONDS: Final = 0.1
"""How often the coordinator looks at its limits."""

LONGEST_GAP: Final = 1.0
"""If this process itself did not run for longer than this, the rest does not count for any limit."""

MAX_UNSENT: Final = 64 * 1024 * 1024
"""A member that does not read so many bytes is taken for dead."""

MAX_HELLO: Final = 65536
"""Longest hello in bytes."""

ENDED: Final = "ended without a word (killed, or crashed)"


class _Link(Line):
    """The connection to one member."""

    def __init__(self, member: Member, connection: socket.socket, wire: Wire) -> None:
        super().__init__(connection, wire)
        self.member = member


class Server(Door[JoinHello | LauncherHello]):
    """The coordinator.

    Args:
        listeners: Sockets that listen where members come.
        secret: What they prove that they know.
        rules: Those of the run.
        kill: Kills the process of a member, where it is this machine's to kill. Called in the server's thread. The
            launchers of other machines are told to kill theirs.
        say: Writes a line to the terminal.
        show: Hears what the processes of another machine do: its name, and what its launcher says.
        look: Returns what the system says of a member that has been silent for a moment; None where it runs.
        clock: Where time comes from.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        secret: bytes,
        rules: Rules,
        *,
        kill: Callable[[Member, str], object],
        say: Callable[[str], object] = announce,
        show: Callable[[str, Tasks], object] = lambda host, tasks: None,
        look: Callable[[Member], str | None] = find_stopped,
        clock: Clock | None = None,
    ) -> None:
        super().__init__("the coordinator of elastic training", secret, rules.most, MAX_HELLO)
        self._kill, self._say, self._look, self._clock = kill, say, look, clock or Clock()
        self._looked_at = self._clock.now()
        self._now = 0.0
        self._ticked = 0.0
        self._state = State(rules)
        self._links: dict[socket.socket, _Link] = {}
        self._by_number: dict[int, _Link] = {}
        self._num_joined = 0
        self._least = rules.options.min_workers
        self._first: JoinHello | None = None
        self._store: WorldStore | None = None
        self._kept: Mapping[str, str] = {}
        self._why_over = "it has not begun"
        self._wanted: SimpleQueue[Event | None] = SimpleQueue()
        self._is_closed = False
        self._has_ended = threading.Event()
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake)
        self._launchers = Launchers(self._selector, lambda host, ended: self.ended(ended, host), show)
        for listener in listeners:
            self.open(listener)
        self._thread = threading.Thread(target=self._run, name="stratagem-elastic-server", daemon=True)

    def start(self) -> None:
        """Begin to let members in."""
        self._thread.start()

    def report(self, event: Event) -> None:
        """Tell the protocol what the launcher knows: an exit code, a process that is stopped. Any thread may.

        Args:
            event: What happened.
        """
        self._wanted.put(event)
        self._ring()

    def ended(self, ended: Ended, host: str | None = None) -> None:
        """Tell what has become of a process, which may not have joined. Any thread may.

        Args:
            ended: How it has ended.
            host: Name of its machine; None for this one.
        """
        member = self.member(socket.gethostname() if host is None else host, ended.pid)
        if member is None:
            if ended.error:
                self.report(FailedAlone(f"a process failed before it had joined: {ended.error}"))
            return
        if ended.error:
            self.report(Failed(member.number, ended.error))
        self.report(Lost(member.number, ended.how, ended.has_exited))

    def let_all_leave(self, seconds: float) -> None:
        """Let all members leave, as the run is told to end. Any thread may.

        Args:
            seconds: How long they still live.
        """
        for number in list(self._state.places):
            self.report(Leaving(number, seconds))

    @property
    def status(self) -> Status:
        """The standing of the run, for those who start its processes."""
        state = self._state
        code = state.code if self._has_ended.is_set() else None
        return Status(state.is_forming(self._now), state.is_closed, code)

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end of the run; return the exit code, or None when it has not ended in time.

        Args:
            seconds: How long to wait; None for the limits of the protocol.
        """
        return self._state.code if self._has_ended.wait(seconds) else None

    @property
    def state(self) -> State:
        """Where the run stands."""
        return self._state

    def stop(self) -> None:
        """End the server, whatever the members do; they hear that the coordinator is gone."""
        self._wanted.put(None)
        self._ring()
        self._thread.join(10.0)

    def member(self, host: str, pid: int) -> Member | None:
        """Return the member that a process is; None where it has not joined, or is gone.

        Args:
            host: Name of its machine.
            pid: Its process number there.
        """
        places = list(self._state.places.values())
        return next((each.member for each in places if (each.member.host, each.member.pid) == (host, pid)), None)

    # The thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._state.phase is not Phase.ENDED and not self._is_closed:
                self.serve(max(0.0, self._ticked + TICK_SECONDS - self._now))
                self._pass_time()
                self._take_wanted()
                if self._now >= self._ticked + TICK_SECONDS:
                    self._tick()
                self._launchers.tell(self.status)
        except Exception:
            logger.exception("The coordinator of elastic training has failed.")
        finally:
            if self._state.phase is not Phase.ENDED and self._state.code is None:
                self._state = State(self._state.rules, Phase.ENDED, code=exits.PEER_LOST, reason="it was stopped")
            for link in list(self._links.values()):
                self._kill(link.member, "did not end in time")
                self._launchers.kill(link.member)
                self._part(link)
            self._launchers.tell(dataclasses.replace(self.status, code=self._state.code))
            self._launchers.close()
            self.close()
            self._waker.close()
            self._woken.close()
            self._has_ended.set()

    def _pass_time(self) -> None:
        """Let time go on. While this process did not run it heard nobody, so that time counts for nothing."""
        now = self._clock.now()
        self._now += min(now - self._looked_at, LONGEST_GAP)
        self._looked_at = now

    def _ring(self) -> None:
        try:
            self._waker.send(b"!")
        except OSError:  # full, or closed: it wakes anyhow
            pass

    def _wake(self, connection: socket.socket) -> None:
        connection.recv(65536)

    def _take_wanted(self) -> None:
        while True:
            try:
                event = self._wanted.get_nowait()
            except Empty:
                return
            if event is None:
                self._is_closed = True
                return
            self._hear(event)

    def _tick(self) -> None:
        self._ticked = self._now
        for number, place in list(self._state.places.items()):
            if self._now >= place.heard + self._state.rules.limits.suspect:
                how = self._look(place.member)
                if how is not None and self._state.phase is not Phase.ENDING:
                    self._hear(Lost(number, how))
        self._hear(Tick())
        if self._store is not None:
            self._answer(self._store.tick(self._now))

    # Members -----------------------------------------------------------------------------------------

    def _decode(self, text: str) -> JoinHello | LauncherHello:
        return read_hello(text)

    def _admit(self, guest: Guest[JoinHello | LauncherHello], hello: JoinHello | LauncherHello) -> None:
        rules = self._state.rules
        try:
            if isinstance(hello, LauncherHello):
                check_launches(hello, self._least, rules.wanted)
            else:
                check_joins(hello, self._first)
                if self._first is None and hello.options is not None:
                    rules = rules.with_options(ElasticOptions.decode(hello.options))
        except StratagemError as error:
            logger.warning("%s", error)
            guest.answer(json.dumps(error_answer(error)))
            self._drop(guest)
            return
        assert guest.handshake is not None, "who has said hello has shaken hands"
        wire = Wire(guest.handshake, "coordinator", guest.unread)
        if isinstance(hello, LauncherHello):
            guest.answer("{}")
            self._hand_over(guest)
            self._launchers.admit(hello.launches_on, guest.connection, wire)
            return
        self._pass_time()
        if self._first is None:
            self._first = hello
            self._state = dataclasses.replace(self._state, rules=rules)
        self._num_joined += 1
        member = Member(self._num_joined, hello.host, hello.pid, hello.address, hello.is_spare)
        numbers = {"least": rules.options.min_workers, "wanted": rules.wanted, "most": rules.most}
        guest.answer(json.dumps({"member": member.number, **numbers}))
        self._hand_over(guest)
        link = _Link(member, guest.connection, wire)
        self._links[link.connection] = self._by_number[member.number] = link
        self._selector.register(link.connection, selectors.EVENT_READ, self._serve_link)
        self._hear(Joined(member))

    def _serve_link(self, connection: socket.socket) -> None:
        link = self._links.get(connection)
        if link is None:  # parted with a moment ago
            return
        self._pass_time()
        link.flush()
        self._listen_to(link)
        try:
            data = connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(link, ENDED)
            return
        try:
            for message in link.wire.feed(data):
                self._take_message(link, message)
        except (ValueError, LookupError, TypeError) as error:
            self._lose(link, f"sent what is no message ({error})")

    def _take_message(self, link: _Link, message: Mapping[str, Any]) -> None:
        number = link.member.number
        if "ask" not in message:
            self._hear(read_report(message, number))
        elif self._store is None or self._store.world != message.get("world"):
            if type(message["ask"]) is not int:
                raise ValueError(f"{message['ask']!r} is no number")
            self._answer([Answer(number, message["ask"], error=(OVER, self._why_over))])
        else:
            self._answer(self._store.ask(number, message, self._now))

    def _lose(self, link: _Link, how: str) -> None:
        self._part(link)
        self._hear(Lost(link.member.number, how))

    def _part(self, link: _Link) -> None:
        """Close the connection to a member."""
        if self._links.pop(link.connection, None) is not None:
            del self._by_number[link.member.number]
            self._selector.unregister(link.connection)
            link.connection.close()

    def _listen_to(self, link: _Link) -> None:
        """Wait for what a member says, and, where something is left to be sent, until it reads."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.unsent else 0)
        if self._links.get(link.connection) is link:
            self._selector.modify(link.connection, events, self._serve_link)

    def _tell(self, number: int, message: Mapping[str, Any]) -> None:
        link = self._by_number.get(number)
        if link is None:
            return
        link.say(message)
        self._listen_to(link)
        if len(link.unsent) > MAX_UNSENT:
            self._part(link)
            self.report(Lost(number, "does not read what it is told"))

    # What is done ------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        self._state, actions = advance(self._state, event, self._now)
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Say):
            self._say(action.line)
        elif isinstance(action, KillMember):
            link = self._by_number.get(action.member.number)
            if link is not None:
                self._part(link)
            self._kill(action.member, action.reason)
            self._launchers.kill(action.member)
        else:
            if isinstance(action, Form):
                self._close_store(f"world {action.world.number} takes its place")
                self._store = WorldStore(action.world.number, frozenset(action.world.numbers), self._kept)
            elif isinstance(action, Stop) and action.cut:
                self._close_store(action.reason)
            elif self._state.phase is Phase.ENDING:
                self._close_store(self._state.reason)
            message = write_order(action)
            for number in action.to:
                self._tell(number, message)

    def _close_store(self, reason: str) -> None:
        """Answer all who wait within the world that ends."""
        self._why_over = reason
        if self._store is not None:
            self._kept = self._store.kept()
            answers, self._store = self._store.close(reason), None
            self._answer(answers)

    def _answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            self._tell(answer.to, {"answer": answer.ask, "value": answer.value, "error": answer.error})


assert MAX_UNSENT > MAX_LINE, "the longest message must not part a member from the coordinator"
