"""Connections that tell each task what becomes of the others.

The connection on which a task said hello stays open as long as its process lives, and the system closes it when
the process dies, however it dies. So a death is news within milliseconds, where a collective may hang for ever,
JAX's exit barrier takes minutes, and JAX's own news of the death of process 0 is an abort.

Process 0 has a connection to every task, the others one to process 0. Messages are lines of JSON:

* every second a task tells process 0 what it is doing (`at`), and what its seconds were spent on, by which slow tasks
  are named (`stragglers`). Process 0 answers with what it is doing itself, and with the seconds of silence that are too
  many (`patience`), so that a frozen process 0 is found too. A task that is silent or holds up the others is named in a
  warning long before (`stalls`). What tasks of other hosts do is also written for the launcher (`other_hosts`);
* `failed`: the sender ends because of an exception; `bye`: it has come to the end of its program;
* `end`: process 0 tells all why the group ends, and leaves last, because JAX's coordination service, which
  aborts its clients when it goes, lives there.
"""

from __future__ import annotations

import errno
import json
import math
import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from stratagem.cluster.deadlock import find_deadlock
from stratagem.cluster.hello import Peer, to_line
from stratagem.cluster.stalls import StallNotes
from stratagem.cluster.stragglers import Reading, Stragglers
from stratagem.cluster.watchdog import Standing, find_hang, patience
from stratagem.core import exits
from stratagem.core.clock import Clock, Deadline
from stratagem.core.counters import resident_bytes
from stratagem.core.errors import name_some
from stratagem.core.log import announce_once, logger, warn_apart
from stratagem.core.progress import Phase, Progress
from stratagem.core.spent import Spent

BEAT_SECONDS: Final = 1.0
"""How often tasks tell what they are doing."""

LEAVING_SECONDS: Final = 3.0
"""How long process 0 waits for the others to leave before it does."""

HOST_SECONDS: Final = 20
"""How long the system tries to reach the host of a peer before it counts as gone.

TCP sends a lost packet again after 0.2, 0.6, 1.4 ... s, six times until then: with one packet in ten lost, one of
100,000 messages finds no way (tests/faults/test_networks.py loses one in five).
"""

MAX_LINE: Final = 1024 * 1024
"""Longest message in bytes; the longest is an error that all tasks show."""

UNREACHED: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
"""Errors of a connection whose other end answers no more."""

LONG_END_SECONDS: Final = 30.0
"""After this time at the end of its program a task says whom it waits for."""


class End(NamedTuple):
    """Why the group ends before its time.

    Args:
        code: The exit code.
        found: What was found, in words.
        stuck: Positions of the tasks that hang.
        remedy: What to do; empty where their output says it.
    """

    code: int
    found: str
    stuck: tuple[int, ...] = ()
    remedy: str = ""


@dataclass
class _Link:
    """The connection to one peer, and what it said last.

    Args:
        peer: The peer.
        connection: The connection, which never waits.
        heard: When the peer said something last.
        unread: The beginning of a line that has not come to its end.
        said: What the peer was doing then.
        has_ended: Whether its program has come to its end.
    """

    peer: Peer
    connection: socket.socket
    heard: float
    unread: bytes
    said: Standing
    has_ended: bool = False

    def standing(self, now: float) -> Standing:
        """Return what the peer is doing, as far as one knows."""
        silence = now - self.heard
        phase = Phase.ENDED if self.has_ended else self.said.phase
        return replace(self.said, phase=phase, seconds=self.said.seconds + silence, silence=silence)

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message without waiting. A frozen peer does not read it; that a peer is gone shows when we read."""
        try:
            self.connection.send(to_line(message))
        except OSError:
            pass


@dataclass(eq=False)
class Lifeline:
    """This process's end of the connections. A daemon thread listens to them.

    Args:
        peers: All processes, in order of process index.
        index: Which of them this one is.
        connections: A connection to every other process on process 0, to process 0 on the others; by process
            index. Beside each stands what has been read of it already.
        progress: What this process is doing.
        hang_timeout: Seconds without progress that are too many; None leaves it to the program's own steps.
        show: Tells the user why this process ends. Called once, by the thread.
        leave: Ends this process with an exit code.
        warn: Tells the user what does not end this process.
        clock: Where time comes from.
        note: Called on process 0 with each beat: what each process is doing, this one first.
    """

    peers: Sequence[Peer]
    index: int
    connections: Mapping[int, tuple[socket.socket, bytes]]
    progress: Progress
    hang_timeout: float | None
    show: Callable[[End], object]
    leave: Callable[[int], object]
    warn: Callable[[str], object] = warn_apart
    clock: Clock = field(default_factory=Clock)
    note: Callable[[Sequence[Standing]], object] = lambda standings: None

    def __post_init__(self) -> None:
        self._patience = patience(self.hang_timeout, ())
        self._stalls = StallNotes()
        self._stragglers = Stragglers()
        self._beaten = self.clock.now()
        self._links = {
            index: _Link(self.peers[index], connection, self.clock.now(), unread, Standing(self.peers[index]))
            for index, (connection, unread) in self.connections.items()
        }
        self._lock = threading.Lock()
        self._all_ended = threading.Event()
        self._ending = threading.Event()
        self._is_heard = threading.Event()
        self._is_over = False
        self._news: End | None = None
        self._leaving: Deadline | None = None
        for link in self._links.values():
            link.connection.setblocking(False)
            notice_dead_host(link.connection)
        os.register_at_fork(after_in_child=self._forget)
        self._thread = threading.Thread(target=self._listen, name="stratagem-lifeline", daemon=True)

    @property
    def own(self) -> Peer:
        """This process."""
        return self.peers[self.index]

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def claim_end(self) -> bool:
        """Return whether nothing ends this process yet. If so, the caller ends it, and news of peers does not."""
        with self._lock:
            is_first = not self._ending.is_set()
            self._ending.set()
        return is_first

    def wait_for_news(self, seconds: float) -> None:
        """Wait until news of a peer ends this process, but not for long."""
        self._ending.wait(seconds)

    def fail(self, found: str) -> None:
        """Tell all tasks that this one ends because of a failure, and return when they know.

        Process 0 returns when they have left: without JAX's coordination service they would abort.

        Args:
            found: What happened. The others show it, and end with PEER_LOST.
        """
        if not self._is_connected:
            return
        if self.index == 0:
            self._tell_all(End(exits.PEER_LOST, found))
        else:
            self._links[0].say({"failed": found})
        self._is_heard.wait(LEAVING_SECONDS)

    def finish(self) -> bool:
        """Say that the program has come to its end, and wait until those of all others have.

        If a task dies or hangs, the group ends, and nobody waits here for it. Work of one task after training, such
        as the last evaluation on the chief, may take any time.

        Returns:
            Whether all have; if not, the others needed this task, and are gone.
        """
        if not self._is_connected:
            return self._news is None
        self.progress.enter(Phase.ENDED)
        if self.index == 0:
            self._check_all_ended()
        else:
            self._links[0].say({"bye": self.progress.mark.steps})
        while not self._all_ended.wait(LONG_END_SECONDS) and self._is_connected:
            announce_once(f"{self.own} has ended its program and waits for {self._unended()} to end theirs.")
        return self._news is None

    def _unended(self) -> str:
        """Return who has not said that its program has ended. Process 0 alone hears of all."""
        waited_for = [str(link.peer) for link in list(self._links.values()) if not link.has_ended]
        return name_some(waited_for) if self.index == 0 and waited_for else "the others"

    @property
    def _is_connected(self) -> bool:
        """Whether there is still somebody to talk to. At a person's prompt a process outlives its group."""
        return self._thread.is_alive() and not self._is_over and bool(self._links)

    # The thread ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                for index, link in self._links.items():
                    selector.register(link.connection, selectors.EVENT_READ, index)
                    self._take_lines(index, b"")
                self._follow(selector)
        except Exception:
            logger.exception("%s no longer sees whether the other tasks are alive.", self.own)

    def _follow(self, selector: selectors.BaseSelector) -> None:
        beat = Deadline(0.0, self.clock)
        while self._links and not self._is_over and not self._may_leave():
            for key, _ in selector.select((self._leaving or beat).remaining):
                end = self._hear(key.data)
                if end is not None:
                    selector.unregister(key.fileobj)
                    self._lose(self._links.pop(key.data), end)
            if beat.expired and self._leaving is None:
                self._beat()
                beat = Deadline(BEAT_SECONDS, self.clock)
        self._is_heard.set()
        if self._news is not None and self.progress.mark.phase is Phase.ENDED and self.index in self._news.stuck:
            self._all_ended.set()  # this program has ended; it was the others that could not get on without it
        elif self._news is not None:
            self.leave(self._news.code)

    def _may_leave(self) -> bool:
        return self._leaving is not None and (self.index != 0 or self._leaving.expired)

    def _hear(self, index: int) -> str | None:
        """Read what a peer sent; return how it ended where it is gone."""
        try:
            data = self._links[index].connection.recv(65536)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in UNREACHED:
                return f"was not reached for {HOST_SECONDS} s (its host is down, or the network between is)"
            data = b""
        try:
            self._take_lines(index, data)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            return f"sent what is no message ({type(error).__name__}: {error})"
        return None if data else "ended without a word (killed, or crashed)"

    def _take_lines(self, index: int, data: bytes) -> None:
        link = self._links[index]
        *lines, link.unread = (link.unread + data).split(b"\n")
        if len(link.unread) > MAX_LINE:
            raise ValueError(f"{len(link.unread)} bytes without the end of a line")
        for line in lines:
            link.heard = self.clock.now()
            self._take(index, link, json.loads(line))

    def _take(self, index: int, link: _Link, message: Mapping[str, Any]) -> None:
        if "at" in message:
            phase, *figures, spent = message["at"]
            link.said = replace(Standing(link.peer, Phase(phase), *figures), spent=Spent(*spent))
            if self.index == 0:
                link.say({"at": self._at(), "patience": self._patience})
            else:
                self._patience = message["patience"]
        elif "bye" in message:
            link.has_ended = True
            link.said = replace(link.said, steps=message["bye"], seconds=0.0)
            self._check_all_ended()
        elif "failed" in message:
            self._end(End(exits.PEER_LOST, message["failed"]))
        elif "end" in message:
            code, found, stuck, remedy = message["end"]
            self._end(End(code, found, tuple(stuck), remedy))
            self._is_heard.set()

    def _lose(self, link: _Link, end: str) -> None:
        link.connection.close()
        if not self._is_over:
            # Its last message is up to a second old. But a step that has ended here had begun there.
            step = max(link.said.steps, self.progress.mark.steps)
            self._end(End(exits.PEER_LOST, f"{link.peer} {end}, last seen at step {step}."))

    def _beat(self) -> None:
        now = self.clock.now()
        paused = now - self._beaten
        self._beaten = now
        if paused > 2 * BEAT_SECONDS:  # this process was frozen, and heard nobody meanwhile
            for link in self._links.values():
                link.heard = min(now, link.heard + paused)
        if self.index == 0:
            standings = [Standing(self.own, *self._at()), *(self._links[i].standing(now) for i in sorted(self._links))]
            self._patience = patience(self.hang_timeout, standings)
            hang = find_hang(standings, self._patience)
            if hang is None and math.isfinite(self._patience):
                hang = find_deadlock(standings)
        else:
            first = self._links[0]
            first.say({"at": self._at()})
            # Only its silence counts here: process 0 knows better which task holds up the others.
            standings = [Standing(first.peer, steps=first.said.steps, silence=now - first.heard)]
            hang = find_hang(standings, self._patience)
        if hang is not None:
            self._end(End(exits.PEER_LOST if hang.has_ended else exits.HUNG, hang.found, hang.stuck, hang.remedy))
            return
        for line in self._stalls.look(standings, now, self._patience):
            self.warn(line)
        if self.index == 0:
            self._name_straggler(standings)
            self.note(standings)

    def _name_straggler(self, standings: Sequence[Standing]) -> None:
        """Say which worker the others wait for, step by step."""
        if any(standing.clock == 0.0 for standing in standings):
            return
        found = self._stragglers.look([Reading(each.clock, each.steps, each.spent) for each in standings])
        if found is not None:
            self.warn(found.described(str(standings[found.task].peer)))

    def _at(self) -> tuple[Phase, int, float, float, float, int, str, bool, str, float, float, int, Spent]:
        """Return what this process is doing, as a `Standing` takes it behind the peer."""
        mark, progress = self.progress.mark, self.progress
        now = progress.clock.now()
        figures = mark.steps, now - mark.since, progress.longest_step, progress.usual_step
        return mark.phase, *figures, *mark[3:], now, progress.loss, resident_bytes(), progress.spent

    def _check_all_ended(self) -> None:
        """Stop waiting when all programs have come to their end. Process 0 knows, and tells the others."""
        with self._lock:
            links = list(self._links.values())
            if self.progress.mark.phase is Phase.ENDED and all(link.has_ended for link in links):
                self._is_over = True
                if self.index == 0:
                    for link in links:
                        link.say({"bye": self.progress.mark.steps})
                self._all_ended.set()

    def _end(self, end: End) -> None:
        """End this process because of news; process 0 tells the others first."""
        if self.claim_end():
            if self.index == 0:
                self._tell_all(end)
            self.show(end)
            self._news, self._leaving = end, Deadline(LEAVING_SECONDS, self.clock)

    def _tell_all(self, end: End) -> None:
        for link in list(self._links.values()):
            link.say({"end": end})

    def _forget(self) -> None:
        """In a forked child: it is no task, and must not keep the connections open when its parent dies."""
        self._is_over = True
        for link in self._links.values():
            link.connection.close()


def notice_dead_host(connection: socket.socket) -> None:
    """Let the system close the connection when the host at its other end is gone, which sends no word.

    Args:
        connection: The connection.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    each = HOST_SECONDS // 4
    options = {"TCP_KEEPIDLE": each, "TCP_KEEPINTVL": each, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 1000 * HOST_SECONDS}
    for name, value in options.items():
        if hasattr(socket, name):  # Linux has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
