"""The lifeline between threads of this process, which stand for tasks: nobody truly leaves."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest
from tests.clock import HandClock

from stratagem.cluster import lifeline
from stratagem.cluster.hello import Peer
from stratagem.cluster.lifeline import MAX_LINE, End, Lifeline, _Link
from stratagem.cluster.spec import Task
from stratagem.cluster.watchdog import Standing
from stratagem.core import exits
from stratagem.core.clock import Deadline
from stratagem.core.progress import Phase, Progress

SECONDS = 10.0
PEERS = [Peer(Task("worker", index), "host", 100 + index) for index in range(3)]


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


class Group:
    """Process 0 and two others. Of one that is silent, nothing comes but what the test sends in its place."""

    def __init__(self, hang_timeout: float | None = None, silent: int | None = None) -> None:
        self.pairs = {index: connected() for index in (1, 2)}
        self.progress = [Progress() for _ in PEERS]
        self.shown: list[list[End]] = [[] for _ in PEERS]
        self.left: list[SimpleQueue[int]] = [SimpleQueue() for _ in PEERS]
        connections = [
            {index: (pair[0], b"") for index, pair in self.pairs.items()},
            *({0: (pair[1], b"")} for pair in self.pairs.values()),
        ]
        self.lines = [
            Lifeline(
                PEERS,
                index,
                connections[index],
                self.progress[index],
                hang_timeout,
                show=self.shown[index].append,
                leave=self._leaving(index),
            )
            for index in range(len(PEERS))
        ]
        self.started = [line for index, line in enumerate(self.lines) if index != silent]
        for line in self.started:
            line.start()

    def _leaving(self, index: int) -> Callable[[int], None]:
        def leave(code: int) -> None:
            self.disconnect(index)
            self.left[index].put(code)

        return leave

    def disconnect(self, index: int) -> None:
        """Do what the system does when a process has ended."""
        for pair in self.pairs.values() if index == 0 else [self.pairs[index]]:
            end = pair[0 if index == 0 else 1]
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed already
                pass

    def codes(self, *indices: int) -> list[int]:
        """Return the exit codes of these processes, once they leave."""
        return [self.left[index].get(timeout=SECONDS) for index in indices]


@pytest.fixture
def make_group(request: pytest.FixtureRequest) -> Iterator[Callable[..., Group]]:
    groups: list[Group] = []

    def make(hang_timeout: float | None = None, silent: int | None = None) -> Group:
        groups.append(Group(hang_timeout, silent))
        return groups[-1]

    yield make
    for group in groups:
        for index in range(len(PEERS)):
            group.disconnect(index)
        for line in group.started:
            line._thread.join(SECONDS)
        for pair in group.pairs.values():
            for end in pair:
                end.close()


def test_a_peer_is_in_its_phase_since_it_was_heard_last() -> None:
    ours, theirs = connected()
    with ours, theirs:
        said = Standing(PEERS[1], Phase.STEP, steps=7, seconds=2.0, longest_step=1.5, loss=0.5)
        link = _Link(PEERS[1], ours, heard=10.0, unread=b"", said=said)
        assert link.standing(13.0) == Standing(PEERS[1], Phase.STEP, 7, 5.0, 1.5, silence=3.0, loss=0.5)
        link.has_ended = True
        assert link.standing(13.0).phase is Phase.ENDED


@pytest.mark.parametrize("dead", [1, 2])
def test_a_death_is_told_to_all(make_group: Callable[..., Group], dead: int) -> None:
    group = make_group()
    with group.progress[0].during(Phase.STEP, steps=4):
        pass
    group.disconnect(dead)
    others = [index for index in (1, 2, 0) if index != dead]
    assert group.codes(*others) == [exits.PEER_LOST] * 2
    found = f"{PEERS[dead]} ended without a word (killed, or crashed), last seen at step 4."
    assert [end.found for index in others for end in group.shown[index]] == [found] * 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"garbage\n", "sent what is no message (JSONDecodeError: "),
        (b"[]\n" + b"[" * 100_000 + b"\n", "sent what is no message (RecursionError: "),
        (b'{"at": ["NOTHING", 1]}\n', "sent what is no message (ValueError: "),
        (b'{"end": [1]}\n', "sent what is no message (ValueError: "),
        (
            b"x" * (MAX_LINE + 1),
            f"sent what is no message (ValueError: {MAX_LINE + 1} bytes without the end of a line)",
        ),
    ],
)
def test_what_is_no_message_ends_the_group(make_group: Callable[..., Group], data: bytes, reason: str) -> None:
    group = make_group(silent=1)
    group.pairs[1][1].setblocking(True)
    sender = threading.Thread(target=group.pairs[1][1].sendall, args=(data,))
    sender.start()
    assert group.codes(0, 2) == [exits.PEER_LOST] * 2
    assert group.shown[2][0].found.startswith(f"{PEERS[1]} {reason}")
    group.disconnect(1)
    sender.join()


class Unreached:
    """A connection of which the system has heard nothing for too long."""

    def recv(self, size: int) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def test_a_partition_is_not_called_a_crash() -> None:
    ours, theirs = connected()
    with ours, theirs:
        line = Lifeline(PEERS, 0, {1: (ours, b"")}, Progress(), None, show=print, leave=print)
        line._links[1].connection = Unreached()  # type: ignore[assignment]  # pyright: ignore
        assert line._hear(1) == "was not reached for 20 s (its host is down, or the network between is)"


def test_the_death_of_process_0_is_seen_by_each(make_group: Callable[..., Group]) -> None:
    group = make_group()
    group.disconnect(0)
    assert group.codes(1, 2) == [exits.PEER_LOST] * 2
    assert group.shown[1][0].found.startswith("worker 0 (host host, pid 100) ended without a word")


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_told_with_its_reason(make_group: Callable[..., Group], failing: int) -> None:
    group = make_group()
    assert group.lines[failing].claim_end()
    group.lines[failing].fail("worker failed: ValueError: boom")
    group.disconnect(failing)
    others = [index for index in (1, 2, 0) if index != failing]
    assert group.codes(*others) == [exits.PEER_LOST] * 2
    assert [end.found for index in others for end in group.shown[index]] == ["worker failed: ValueError: boom"] * 2
    assert group.shown[failing] == []  # it has shown its own traceback


def test_a_hang_is_told_to_all_with_who_is_stuck(make_group: Callable[..., Group]) -> None:
    group = make_group(hang_timeout=0.3)
    with group.progress[0].during(Phase.STEP), group.progress[2].during(Phase.STEP):
        assert group.codes(1, 2, 0) == [exits.HUNG] * 3
    assert [end.stuck for shown in group.shown for end in shown] == [(1,)] * 3


def test_the_end_of_the_program_waits_for_all_and_then_nothing_is_news(make_group: Callable[..., Group]) -> None:
    group = make_group()
    results: SimpleQueue[bool] = SimpleQueue()
    threads = [threading.Thread(target=lambda line=line: results.put(line.finish())) for line in group.lines]
    for thread in threads[:2]:
        thread.start()
    group.lines[1].wait_for_news(0.3)
    assert results.empty()
    threads[2].start()
    for thread in threads:
        thread.join(SECONDS)
    assert [results.get(timeout=SECONDS) for _ in threads] == [True] * 3
    for index in range(3):
        group.disconnect(index)
    for line in group.lines:
        line._thread.join(SECONDS)
    assert group.shown == [[], [], []]


def test_who_waits_at_the_end_says_for_whom(make_group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch) -> None:
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(lifeline, "LONG_END_SECONDS", 0.05)
    monkeypatch.setattr(lifeline, "announce_once", said.put)
    group = make_group()
    threads = [threading.Thread(target=group.lines[index].finish) for index in (1, 0, 2)]
    threads[0].start()
    assert said.get(timeout=SECONDS).endswith("waits for the others to end theirs.")
    threads[1].start()
    expected = f"{PEERS[0]} has ended its program and waits for {PEERS[2]} to end theirs."
    assert expected in [said.get(timeout=SECONDS) for _ in range(20)]
    threads[2].start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_who_ends_its_program_while_others_need_it_goes_its_way(make_group: Callable[..., Group]) -> None:
    group = make_group()
    with group.progress[0].during(Phase.STEP), group.progress[2].during(Phase.STEP):
        assert group.lines[1].finish() is False
        assert group.codes(2) == [exits.PEER_LOST]
    group.disconnect(1)
    assert group.codes(0) == [exits.PEER_LOST]
    assert "worker 1 (host host, pid 101) has been at the end of its program for" in group.shown[2][0].found


def test_a_process_that_was_frozen_itself_calls_nobody_silent() -> None:
    ours, theirs = connected()
    clock, said = HandClock(), []
    with ours, theirs:
        line = Lifeline(
            PEERS[:2], 1, {0: (ours, b"")}, Progress(clock), 60.0, said.append, said.append, said.append, clock
        )
        for _ in range(4):
            clock.time += 1.0
            line._beat()
        clock.time += 1000.0
        line._beat()
        assert said == []
        for _ in range(2):
            clock.time += 1.0
            line._beat()
        assert said == [f"{PEERS[0]} has been silent for 6 s (last heard after step 0). All end when that lasts 60 s."]


def test_beats_do_not_pile_up_before_a_frozen_peer() -> None:
    ours, theirs = connected()
    line = Lifeline(PEERS[:2], 1, {0: (ours, b"")}, Progress(), None, show=lambda end: None, leave=lambda code: None)
    deadline = Deadline(SECONDS)
    for _ in range(20_000):  # five hours
        line._beat()
    assert not deadline.expired
    ours.close()
    theirs.close()
