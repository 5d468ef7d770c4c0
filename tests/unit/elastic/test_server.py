"""The coordinator and its members over real sockets, as threads of one process or as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import jax
import pytest
from tests.clock import HandClock

from stratagem.cluster.agreement import Peers
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.core import exits
from stratagem.core.clock import Clock, Deadline
from stratagem.core.errors import ClusterError, PeerError, StartupError
from stratagem.core.progress import Phase as Doing
from stratagem.core.progress import Progress
from stratagem.elastic import client as clients
from stratagem.elastic.client import Membership, join
from stratagem.elastic.events import Beat, End, Form, Go, Lost, Order, Prepare, Stop, StopAfter
from stratagem.elastic.frozen import find_stopped, state_in_words
from stratagem.elastic.hello import JoinHello
from stratagem.elastic.limits import Limits
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.server import Server
from stratagem.elastic.state import Phase, Rules
from stratagem.elastic.world import Bounds, Member, World, WorldChangedError
from stratagem.elastic.world_store import WorldClient

SECONDS = 20.0
SECRET = b"the secret of this cluster"
LIMITS = Limits(settle=0.05, end=5.0)


class Cluster:
    """A server, and members that a test lets join."""

    def __init__(self, rules: Rules, secret: bytes, clock: Clock | None, look: Callable[[Member], str | None]) -> None:
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.killed: SimpleQueue[tuple[int, str, float]] = SimpleQueue()
        self.shown: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.server = Server(
            [listener],
            secret,
            rules,
            kill=lambda member, reason: self.killed.put((member.number, reason, time.monotonic())),
            say=self.lines.put,
            show=lambda host, tasks: self.shown.put((host, tasks)),
            look=look,
            clock=clock,
        )
        self.server.start()
        self.members: list[Membership] = []

    def hello(self, is_spare: bool = False, **fields: Any) -> JoinHello:
        number = len(self.members) + 1
        return JoinHello(**{"host": "h", "pid": 100 + number, "address": f"h:{number}", "is_spare": is_spare, **fields})

    def join(self, is_spare: bool = False, **arguments: Any) -> Membership:
        arguments = {"progress": Progress(), **arguments}
        member = join(self.address, self.hello(is_spare), SECRET, Deadline(SECONDS), **arguments)
        self.members.append(member)
        return member

    def train(self, count: int) -> list[Membership]:
        """Let so many workers join, and form world 1."""
        members = [self.join() for _ in range(count)]
        form(members, 1)
        return members


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    clusters: list[Cluster] = []

    def make(
        wanted: int,
        least: int = 1,
        most: int | None = None,
        *,
        secret: bytes = SECRET,
        limits: Limits = LIMITS,
        clock: Clock | None = None,
        look: Callable[[Member], str | None] = lambda member: None,
        is_given: bool = False,
    ) -> Cluster:
        rules = Rules(wanted, ElasticOptions(least, most), limits, is_given)
        clusters.append(Cluster(rules, secret, clock, look))
        return clusters[-1]

    yield make
    for each in clusters:
        for member in each.members:
            member.close()
        each.server.stop()


def expect(member: Membership, kind: type[Order]) -> Any:
    order = member.next_order(SECONDS)
    assert type(order) is kind, order
    return order


def form(members: list[Membership], number: int) -> World:
    """Let members form a world, which then goes."""
    worlds = [expect(member, Form).world for member in members]
    assert all(world == worlds[0] for world in worlds)
    assert worlds[0].number == number
    for member in members:
        member.formed(number)
    for member in members:
        assert expect(member, Go).world == number
    return worlds[0]


def step(*members: Membership) -> None:
    for member in members:
        assert member.may_begin()
    for member in members:
        member.completed()


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread does."""
    deadline = Deadline(SECONDS)
    while not condition():
        assert not deadline.expired
        Clock().wait(0.001)


# A run -----------------------------------------------------------------------------------------------


def test_a_run_from_its_start_to_its_end(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    step(*members)
    for member in members:
        member.finished()
    for member in members:
        assert expect(member, End) == End((member.number,), 0, "training has come to its end")
        member.close()
    assert run.server.wait(SECONDS) == 0
    assert [run.lines.get_nowait() for _ in range(2)] == [
        "World 1: 2 workers from step 1.",
        "The run ends with exit code 0: training has come to its end.",
    ]


def test_a_death_is_known_to_the_others_within_50_ms(cluster: Callable[..., Cluster]) -> None:
    """The median of several: this machine may be busy."""
    delays = []
    for _ in range(5):
        run = cluster(2)
        members = run.train(2)
        step(*members)
        died = time.monotonic()
        members[0]._connection.shutdown(socket.SHUT_RDWR)
        stop = expect(members[1], Stop)
        delays.append(time.monotonic() - died)
        assert stop.cut
        assert stop.reason.startswith("worker 0 (host h, pid 101) ended without a word (killed, or crashed)")
    assert sorted(delays)[2] < 0.05, delays


def test_survivors_go_on_from_the_greatest_step(cluster: Callable[..., Cluster]) -> None:
    run = cluster(3)
    first, second, third = run.train(3)
    step(first, second, third)
    assert second.may_begin()
    second.completed()
    assert third.may_begin()
    first.close()
    for member in (second, third):
        assert expect(member, Stop).cut
        assert not member.may_begin()
        member.stopped()
    world = form([second, third], 2)
    assert (world.step, world.donor, world.numbers) == (2, 0, (second.number, third.number))
    assert (third.gate.begun, third.gate.completed) == (2, 2)
    assert third.may_begin()


def test_a_joiner_comes_in_behind_a_common_step(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2, most=3)
    members = run.train(2)
    step(*members)
    assert members[0].may_begin()
    joiner = run.join()
    assert expect(joiner, Prepare).world.numbers == (1, 2)
    joiner.prepared()
    for member in members:
        assert not expect(member, Stop).cut
        assert expect(member, StopAfter).step == 2
    assert members[1].may_begin()
    for member in members:
        member.completed()
        assert not member.may_begin()
        member.stopped()
    world = form([*members, joiner], 2)
    assert (world.step, len(world.members)) == (2, 3)
    assert joiner.gate.completed == 2


def test_a_step_waits_until_the_last_one_is_known(cluster: Callable[..., Cluster]) -> None:
    """A member that comes to its next step while others still tell how many they have begun."""
    run = cluster(2, most=3)
    members = run.train(2)
    assert members[1].may_begin()
    run.join().prepared()
    with ThreadPoolExecutor(1) as pool:
        expect(members[0], Stop)
        assert pool.submit(members[0].may_begin).result(SECONDS)
    members[0].completed()
    assert not members[0].may_begin()


def test_a_member_leaves_from_a_signal_handler(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    with members[0]._sending:  # as if the signal came while a message is sent
        members[0].leaves(30.0)
    for member in members:
        assert not expect(member, Stop).cut
        assert expect(member, StopAfter).step == 0
        assert not member.may_begin()
        member.stopped()
    assert expect(members[0], End).code == exits.PREEMPTED
    assert expect(members[1], Stop).cut
    assert form(members[1:], 2).numbers == (2,)


def test_an_exception_of_the_program_ends_the_run(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    members[1].failed("ValueError: shapes")
    end = expect(members[0], End)
    assert (end.code, end.reason) == (1, "worker 1 (host h, pid 102) failed: ValueError: shapes")
    assert members[1].end == End((2,), 1, end.reason)


def test_an_order_is_handed_on_at_once(cluster: Callable[..., Cluster]) -> None:
    heard: SimpleQueue[Order] = SimpleQueue()

    def on_order(order: Order) -> None:
        heard.put(order)
        raise ValueError("a mistake of whoever uses this")

    run = cluster(1)
    run.join(on_order=on_order)
    assert heard.get(timeout=SECONDS) == expect(run.members[0], Form)


def test_the_launcher_reports_what_it_knows(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    second = run.server.member("h", 102)
    assert second is not None
    assert run.server.member("h", 999) is None
    run.server.report(Lost(second.number, "was ended by SIGKILL", has_exited=True))
    assert "worker 1 (host h, pid 102) was ended by SIGKILL" in expect(members[0], Stop).reason
    assert run.killed.empty()


# What programs ask for ------------------------------------------------------------------------------


def joined(run: Cluster, options: ElasticOptions | None) -> Membership:
    """Let a process join whose strategy was made with some options."""
    hello = run.hello(options=None if options is None else options.encode())
    run.members.append(join(run.address, hello, SECRET, Deadline(SECONDS), progress=Progress()))
    return run.members[-1]


def test_a_program_says_how_many_workers_there_may_be(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2, least=2)
    options = ElasticOptions(1, 3, 5.0)
    members = [joined(run, options) for _ in range(2)]
    assert [member.bounds for member in members] == [Bounds(1, 2, 3)] * 2
    form(members, 1)
    step(*members)
    joiner = joined(run, options)
    joiner.prepared()
    for member in members:
        assert not expect(member, Stop).cut
    assert run.server.state.rules.options == options
    assert joiner.bounds == Bounds(1, 2, 3)


def test_bounds_are_those_of_the_launcher_otherwise(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2, least=1, is_given=True)
    assert [joined(run, None).bounds for _ in range(2)] == [Bounds(1, 2, 2)] * 2


@pytest.mark.parametrize(
    ("is_given", "first", "asked", "message"),
    [
        (
            False,
            ElasticOptions(1),
            ElasticOptions(2),
            r"elastic=ElasticOptions\(min_workers=2, below_min_seconds=600\), ",
        ),
        (False, ElasticOptions(1), None, "made with elastic=None, that of the others with elastic=Elastic"),
        (
            False,
            None,
            ElasticOptions(1, 4),
            "max_workers=4, below_min_seconds=600.*, that of the others with elastic=None",
        ),
        (
            True,
            ...,
            ElasticOptions(2),
            r"asks for 2 to 2 workers \(elastic=\), and the launcher was given --elastic 1:2",
        ),
        (False, ..., ElasticOptions(3), "The run is started with 2 workers; min_workers is 3"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    cluster: Callable[..., Cluster], is_given: bool, first: Any, asked: ElasticOptions | None, message: str
) -> None:
    run = cluster(2, is_given=is_given)
    if first is not ...:
        joined(run, first)
    with pytest.raises(PeerError, match=message):
        joined(run, asked)


def test_options_that_say_the_same_as_the_command_line_are_taken(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2, is_given=True)
    joined(run, ElasticOptions(1, below_min_seconds=7.0))
    assert run.server.state.rules.options.below_min_seconds == 7.0


# Silence ---------------------------------------------------------------------------------------------

SLEEPER = """
import sys
from stratagem.core.clock import Deadline
from stratagem.elastic.client import join
from stratagem.elastic.events import Form
from stratagem.elastic.hello import JoinHello
import os, socket
hello = JoinHello(socket.gethostname(), os.getpid(), "h:1")
member = join(sys.argv[1], hello, sys.argv[2].encode(), Deadline(60.0))
assert type(member.next_order()) is Form
member.formed(1)
member.next_order()
print("trains", flush=True)
member.next_order()
"""


def sleeper(run: Cluster, stack: ExitStack, program: str = SLEEPER) -> subprocess.Popen[str]:
    """Start a process that joins, and trains without a step."""
    command = [sys.executable, "-c", program, run.address, SECRET.decode()]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    return process


@pytest.mark.multiprocess
@pytest.mark.quick
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_frozen_is_found_within_a_second(
    cluster: Callable[..., Cluster], how: signal.Signals
) -> None:
    run = cluster(2, look=find_stopped)
    with ExitStack() as stack:
        process = sleeper(run, stack)
        own = run.join()
        expect(own, Form)
        own.formed(1)
        expect(own, Go)
        assert process.stdout is not None
        assert process.stdout.readline() == "trains\n"
        begun = time.monotonic()
        process.send_signal(how)
        stop = expect(own, Stop)
        seconds = time.monotonic() - begun
        words = "ended without a word" if how == signal.SIGKILL else "is frozen (stopped by a signal)"
        assert words in stop.reason
        assert seconds < 1.0, seconds


def test_the_state_of_a_process_in_words() -> None:
    assert state_in_words(os.getpid()) is None
    assert state_in_words(2**30) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert state_in_words(process.pid) == "is frozen (stopped by a signal)"
        assert find_stopped(Member(1, socket.gethostname(), process.pid, "")) == "is frozen (stopped by a signal)"
        assert find_stopped(Member(1, "elsewhere", process.pid, "")) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert state_in_words(process.pid) == "has ended"


def test_one_that_is_silent_but_runs_has_the_longer_limit(cluster: Callable[..., Cluster]) -> None:
    looked: SimpleQueue[Member] = SimpleQueue()
    limits = Limits(suspect=0.2, silent=1.5)

    def look(member: Member) -> None:
        looked.put(member)

    run = cluster(2, limits=limits, look=look)
    members = [run.join(), run.join(beat_seconds=1000.0)]
    form(members, 1)
    while looked.get(timeout=SECONDS).number != 2:  # the other may be late by one beat
        pass
    assert "worker 1 (host h, pid 102) was silent for 1.5 s" in expect(members[0], Stop).reason
    number, reason, _ = run.killed.get(timeout=SECONDS)
    assert (number, reason) == (2, "was silent for 1.5 s")
    assert expect(members[1], End).code == exits.PEER_LOST  # its connection was closed


def test_time_in_which_the_coordinator_did_not_run_does_not_count(cluster: Callable[..., Cluster]) -> None:
    """Its launcher was stopped for an hour; the members have nothing to do with it."""
    clock = HandClock()
    run = cluster(1, clock=clock)
    run.train(1)
    clock.time += 3600.0
    run.server.report(Beat(99, 0))  # wakes it
    until(lambda: run.server._now > 0.0)
    assert run.server._now == 1.0
    assert run.server.state.phase is Phase.RUNNING


def test_one_that_compiles_says_so(cluster: Callable[..., Cluster]) -> None:
    progress = Progress()
    run = cluster(1)
    expect(run.join(progress=progress, beat_seconds=0.01), Form)
    with progress.during(Doing.COMPILING):
        until(lambda: run.server.state.places[1].is_busy)
    until(lambda: not run.server.state.places[1].is_busy)


# Who is let in ---------------------------------------------------------------------------------------


def test_another_secret_is_refused_on_both_sides(cluster: Callable[..., Cluster]) -> None:
    run = cluster(1, secret=b"another secret of the cluster")
    with pytest.raises(ClusterError, match="does not know the secret that it has"):
        run.join()
    assert run.server.state.places == {}


@pytest.mark.parametrize(
    ("fields", "found"),
    [({"protocol": 2}, "with messages of version 2"), ({"versions": {"jax": "0.9.0"}}, "Install the same versions")],
)
def test_other_versions_are_refused(cluster: Callable[..., Cluster], fields: dict[str, Any], found: str) -> None:
    run = cluster(2)
    run.join()
    until(lambda: run.server.state.places)
    with pytest.raises(PeerError, match=found):
        join(run.address, run.hello(**fields), SECRET, Deadline(SECONDS))
    assert list(run.server.state.places) == [1]


def test_a_stranger_changes_nothing(cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture) -> None:
    run = cluster(1)
    host, _, port = run.address.partition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert stranger.recv(1024) == b""
    assert run.train(1)[0].number == 1
    assert "the coordinator of elastic training: a connection from 127.0.0.1 is closed" in caplog.text


def test_a_member_that_sends_what_is_no_message_is_lost(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    members[0]._connection.sendall(b"nonsense\n")
    assert "worker 0 (host h, pid 101) sent what is no message" in expect(members[1], Stop).reason
    assert run.killed.get(timeout=SECONDS)[0] == 1


def test_nobody_listens(cluster: Callable[..., Cluster]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(StartupError, match=r"did not reach the coordinator .* within 5 s: Connection refused") as error:
        join(address, JoinHello("h", 1, ""), SECRET, Deadline(5.0, HandClock()))
    assert "can reach the host and port in STRATAGEM_ELASTIC" in str(error.value)


def test_the_coordinator_is_gone(cluster: Callable[..., Cluster]) -> None:
    run = cluster(1)
    (member,) = run.train(1)
    run.server.stop()
    end = expect(member, End)
    assert end.code == exits.PEER_LOST
    assert end.reason.startswith("the coordinator of elastic training is gone (its launcher was killed")
    assert not member.may_begin()
    member.formed(1)  # nobody hears it; nothing is raised
    assert run.server.wait(0.0) == exits.PEER_LOST


def test_an_order_that_the_coordinator_owes(cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PATIENCE_SECONDS", 0.01)
    run = cluster(2)
    members = run.train(2)
    with pytest.raises(PeerError, match=r"Member 1 waited 0\.01 s; the coordinator did not say what is to be done"):
        members[0].next_order(0.01)
    members[0].gate.hear(Stop((1,), 1, False, ""))
    with pytest.raises(PeerError, match=r"Member 1 waited 0\.01 s; the coordinator did not say which step is the last"):
        members[0].may_begin()


def test_who_does_not_end_is_killed(cluster: Callable[..., Cluster]) -> None:
    run = cluster(1, limits=Limits(end=0.1))
    (member,) = run.train(1)
    member.finished()
    assert expect(member, End).code == 0
    number, reason, _ = run.killed.get(timeout=SECONDS)
    assert (number, reason) == (1, "did not end in time")
    assert run.server.wait(SECONDS) == 0


@pytest.mark.multiprocess
def test_a_forked_child_does_not_keep_the_connection_open(cluster: Callable[..., Cluster]) -> None:
    """A reader of data, which lives until its standard input closes."""
    run = cluster(2)
    with ExitStack() as stack:
        forks = SLEEPER.replace("print(", "if os.fork() == 0: sys.exit(sys.stdin.read())\nprint(")
        process = sleeper(run, stack, forks)
        own = run.join()
        expect(own, Form)
        own.formed(1)
        expect(own, Go)
        assert process.stdout is not None
        assert process.stdout.readline() == "trains\n"
        process.kill()
        assert "ended without a word" in expect(own, Stop).reason


# The store of a world --------------------------------------------------------------------------------


def stores(members: list[Membership], world: int = 1) -> list[WorldClient]:
    those = World(world, tuple(Member(each.number, "host", 1, "") for each in members), donor=0, step=0)
    return [WorldClient(member, those, jax.errors.JaxRuntimeError) for member in members]


def test_some_of_all_members_meet_and_hear_what_each_brings(cluster: Callable[..., Cluster]) -> None:
    first, second, third = stores(cluster(3).train(3))
    with ThreadPoolExecutor(2) as pool:
        own = pool.submit(first.meet, "b", b"\x00 1", [0, 2], 60_000)
        other = pool.submit(third.meet, "b", b"3", [0, 2], 60_000)
        assert own.result() == other.result() == {0: b"\x00 1", 2: b"3"}
    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED"):
        second.meet("b", b"2", [1, 2], 1)


def test_members_leave_values_for_each_other(cluster: Callable[..., Cluster]) -> None:
    first, second = stores(cluster(2).train(2))
    first.key_value_set_bytes("f/1", b"\x00\xff")
    assert second.key_value_dir_get_bytes("f/") == [("f/1", b"\x00\xff")]
    assert second.blocking_key_value_get_bytes("f/1", 1000) == b"\x00\xff"
    with pytest.raises(jax.errors.JaxRuntimeError, match="ALREADY_EXISTS"):
        second.key_value_set_bytes("f/1", b"")
    second.key_value_set_bytes("f/1", b"", allow_overwrite=True)
    second.key_value_delete("f/1")
    assert first.key_value_dir_get_bytes("f/") == []
    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED: nobody has set 'f/1'"):
        first.blocking_key_value_get_bytes("f/1", 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED: 1 did not come to barrier 'b'"):
        first.wait_at_barrier("b", 1)


def test_large_values_cross(cluster: Callable[..., Cluster]) -> None:
    first, second = stores(cluster(2).train(2))
    value = bytes(range(256)) * 8000
    first.key_value_set_bytes("large", value)
    assert second.blocking_key_value_get_bytes("large", 10_000) == value


def test_agreement_runs_on_it(cluster: Callable[..., Cluster]) -> None:
    members = cluster(3).train(3)
    named = [Peer(Task("worker", index), "h", 101 + index) for index in range(3)]
    peers = [Peers(store, named, index, SECONDS) for index, store in enumerate(stores(members))]
    with ThreadPoolExecutor(3) as pool:
        for trial in range(20):
            assert list(pool.map(lambda own: own.from_all("v", own.own_index), peers)) == [[0, 1, 2]] * 3
            chief = pool.map(lambda own, trial=trial: own.from_chief("c", b"%d %d" % (trial, own.own_index)), peers)
            assert list(chief) == [b"%d 0" % trial] * 3
        list(pool.map(lambda own: own.barrier("b"), peers))
        differing = [pool.submit(own.agree, "a", {"n": own.own_index // 2}) for own in peers]
    for each in differing:
        with pytest.raises(PeerError, match=r"n is 1 on worker 2 \(host h, pid 103\)"):
            each.result(SECONDS)


def test_a_wait_ends_at_once_when_its_world_does(cluster: Callable[..., Cluster]) -> None:
    run = cluster(3)
    members = run.train(3)
    first, second, _ = stores(members)
    with ThreadPoolExecutor(2) as pool:
        waits = [
            pool.submit(first.blocking_key_value_get_bytes, "never", 60_000),
            pool.submit(second.wait_at_barrier, "never", 60_000),
        ]
        until(lambda: run.server._store is not None and run.server._store._gets and run.server._store._barriers)
        members[2].close()
        for wait in waits:
            with pytest.raises(WorldChangedError, match=r"World 1 has ended: worker 2 \(host h, pid 103\) ended"):
                wait.result(SECONDS)
    with pytest.raises(WorldChangedError, match="World 1 has ended: worker 2"):
        first.key_value_set_bytes("a", b"")


def test_the_store_of_a_world_that_went_by_is_gone(cluster: Callable[..., Cluster]) -> None:
    run = cluster(2)
    members = run.train(2)
    stores(members)[0].key_value_set_bytes("a", b"1")
    members[1].close()
    expect(members[0], Stop)
    members[0].stopped()
    form(members[:1], 2)
    (second,) = stores(members[:1], 2)
    assert second.key_value_dir_get_bytes("a") == []
    with pytest.raises(WorldChangedError, match="World 1 has ended"):
        stores(members[:1], 1)[0].key_value_dir_get_bytes("a")


def test_the_world_ends_between_a_question_and_its_answer(cluster: Callable[..., Cluster]) -> None:
    """The member has not heard of the next world when it asks; the coordinator answers."""
    run = cluster(2)
    members = run.train(2)
    answers: SimpleQueue[object] = SimpleQueue()
    members[0]._obey = lambda order: None  # pyright: ignore[reportAttributeAccessIssue]
    members[1].close()
    until(lambda: run.server._store is None)

    def ask() -> None:
        try:
            stores(members)[0].key_value_dir_get_bytes("a")
        except WorldChangedError as error:
            answers.put(error.reason)

    thread = threading.Thread(target=ask)
    thread.start()
    assert "worker 1 (host h, pid 102) ended without a word" in str(answers.get(timeout=SECONDS))
    thread.join(SECONDS)


# Many members ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_100_members(cluster: Callable[..., Cluster]) -> None:
    run = cluster(100)
    with ThreadPoolExecutor(100) as pool:
        members = list(pool.map(lambda _: run.join(beat_seconds=1.0), range(100)))
        form(members, 1)
        list(pool.map(lambda store: store.wait_at_barrier("b", 60_000), stores(members)))
        members[50].close()
        rest = [member for member in members if member is not members[50]]
        for member in rest:
            assert expect(member, Stop).cut
            member.stopped()
        assert len(form(rest, 2).members) == 99
