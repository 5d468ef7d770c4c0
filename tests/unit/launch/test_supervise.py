from __future__ import annotations

import signal

import pytest
from tests.clock import HandClock

from stratagem.core import exits
from stratagem.launch.supervise import CAUSE_SECONDS, SERVED_OUT_SECONDS, Failure, Supervisor

TASKS = ["worker 0", "worker 1", "worker 2"]


@pytest.fixture
def clock() -> HandClock:
    return HandClock(100.0)


@pytest.fixture
def supervisor(clock: HandClock) -> Supervisor:
    return Supervisor(TASKS, grace_seconds=10.0, clock=clock)


def test_all_well(supervisor: Supervisor) -> None:
    supervisor.ended({"worker 1": 0})
    assert (supervisor.running, supervisor.signal_due()) == ({"worker 0", "worker 2"}, None)
    assert supervisor.seconds_until_due() is None

    supervisor.ended({"worker 0": 0, "worker 2": 0})
    assert (supervisor.running, supervisor.failure, supervisor.exit_code) == (set(), None, 0)


def test_first_failure_ends_the_others_and_gives_the_exit_code(supervisor: Supervisor, clock: HandClock) -> None:
    clock.time = 103.5
    supervisor.ended({"worker 1": 7})
    assert supervisor.seconds_until_due() == 0.0
    assert [supervisor.signal_due(), supervisor.signal_due()] == [signal.SIGTERM, None]

    supervisor.ended({"worker 0": 1, "worker 2": -signal.SIGTERM})
    assert supervisor.failure == Failure("worker 1", 7, seconds=3.5, num_ended=2)
    assert supervisor.exit_code == 7


def test_who_does_not_end_in_time_is_killed_once(supervisor: Supervisor, clock: HandClock) -> None:
    supervisor.ended({"worker 0": 1})
    assert supervisor.signal_due() == signal.SIGTERM
    clock.time += 9.0
    assert supervisor.signal_due() is None
    assert supervisor.seconds_until_due() == pytest.approx(1.0)
    clock.time += 1.0
    assert [supervisor.signal_due(), supervisor.signal_due()] == [signal.SIGKILL, None]
    assert supervisor.seconds_until_due() is None


def test_of_two_ends_seen_together_the_signal_is_the_cause(supervisor: Supervisor) -> None:
    supervisor.ended({"worker 0": 1, "worker 2": -signal.SIGKILL})

    assert supervisor.failure is not None
    assert supervisor.failure.task == "worker 2"
    assert supervisor.exit_code == 137


@pytest.mark.parametrize(
    ("signal_number", "passed_on", "exit_code"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGHUP, signal.SIGTERM, 129),
        (signal.SIGPIPE, signal.SIGTERM, 141),
    ],
)
def test_interrupt(supervisor: Supervisor, signal_number: int, passed_on: int, exit_code: int) -> None:
    supervisor.interrupted(signal_number)
    assert supervisor.signal_due() == passed_on

    supervisor.ended(dict.fromkeys(TASKS, 1))
    assert (supervisor.failure, supervisor.exit_code) == (None, exit_code)


def test_second_interrupt_kills_at_once(supervisor: Supervisor) -> None:
    supervisor.interrupted(signal.SIGINT)
    assert supervisor.signal_due() == signal.SIGINT
    supervisor.interrupted(signal.SIGINT)
    assert supervisor.signal_due() == signal.SIGKILL
    supervisor.interrupted(signal.SIGINT)
    assert supervisor.signal_due() is None
    assert supervisor.exit_code == 130


def test_interrupt_while_a_failure_ends_the_tasks_kills_at_once(supervisor: Supervisor) -> None:
    supervisor.ended({"worker 0": 3})
    assert supervisor.signal_due() == signal.SIGTERM
    supervisor.interrupted(signal.SIGINT)
    assert supervisor.signal_due() == signal.SIGKILL
    assert supervisor.exit_code == 3


@pytest.mark.parametrize(
    ("returncode", "reason", "exit_code"),
    [
        (1, "failed with exit code 1", 1),
        (-signal.SIGSEGV, "was ended by SIGSEGV", 139),
        (-62, "was ended by signal 62", 190),
    ],
)
def test_failure_in_words(returncode: int, reason: str, exit_code: int) -> None:
    failure = Failure("worker 0", returncode, 1.0)

    assert (failure.reason, failure.exit_code) == (reason, exit_code)


def test_an_end_because_of_a_peer_waits_for_the_cause(supervisor: Supervisor, clock: HandClock) -> None:
    supervisor.ended({"worker 0": exits.PEER_LOST})
    assert supervisor.signal_due() is None
    assert supervisor.seconds_until_due() == pytest.approx(CAUSE_SECONDS)
    clock.time += 1.0
    supervisor.ended({"worker 2": 7})
    assert supervisor.failure == Failure("worker 2", 7, seconds=1.0, num_ended=1)
    assert (supervisor.signal_due(), supervisor.exit_code) == (signal.SIGTERM, 7)


def test_a_peer_on_another_machine_may_be_the_cause(supervisor: Supervisor, clock: HandClock) -> None:
    supervisor.ended({"worker 0": exits.PEER_LOST})
    clock.time += CAUSE_SECONDS
    assert supervisor.signal_due() == signal.SIGTERM
    supervisor.ended({"worker 1": -signal.SIGTERM, "worker 2": exits.PEER_LOST})
    assert supervisor.failure == Failure("worker 0", exits.PEER_LOST, seconds=0.0, num_ended=2)
    assert supervisor.failure.reason == "lost a peer (exit code 43)"
    assert supervisor.exit_code == exits.PEER_LOST


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [([42, 42, 42], exits.PREEMPTED), ([42, 42, 0], exits.PREEMPTED), ([42, 42, 1], 143), ([0, 0, 0], 143)],
)
def test_a_terminated_run_that_saved_everything_says_so(
    supervisor: Supervisor, codes: list[int], exit_code: int
) -> None:
    supervisor.interrupted(signal.SIGTERM)
    supervisor.ended(dict(zip(TASKS, codes, strict=True)))
    assert supervisor.exit_code == exit_code


@pytest.fixture
def with_chief(clock: HandClock) -> Supervisor:
    """A chief that hands out work; two tasks may be started again."""
    return Supervisor(["chief 0", "worker 0", "worker 1", "ps 0"], 10.0, clock, replacements=2)


def started_again(supervisor: Supervisor) -> list[str]:
    return [end.task for end in supervisor.lost_tasks()]


def test_a_lost_worker_of_a_chief_is_started_again_while_it_may(with_chief: Supervisor) -> None:
    for _ in range(2):
        with_chief.ended({"worker 0": -signal.SIGKILL})
        assert (started_again(with_chief), started_again(with_chief)) == (["worker 0"], [])
        assert "worker 0" in with_chief.running

    with_chief.ended({"worker 0": exits.PEER_LOST})
    assert started_again(with_chief) == []
    assert with_chief.running == {"chief 0", "worker 1", "ps 0"}
    assert (with_chief.failure, with_chief.signal_due()) == (None, None)

    with_chief.ended({"chief 0": 0, "worker 1": 0, "ps 0": 0})
    assert with_chief.exit_code == 0


def test_lost_workers_that_are_always_replaced_do_not_count(clock: HandClock) -> None:
    names = ["chief 0", "worker 0", "worker 1", "ps 0"]
    supervisor = Supervisor(names, 10.0, clock, replacements=1, replaces_workers=True)
    for number in (0, 1, 0, 1, 0):
        supervisor.ended({f"worker {number}": -signal.SIGKILL})
        assert started_again(supervisor) == [f"worker {number}"]
    assert supervisor.num_replaced == 0
    supervisor.ended({"chief 0": -signal.SIGKILL})
    assert started_again(supervisor) == ["chief 0"]
    supervisor.ended({"worker 0": -signal.SIGKILL})
    assert started_again(supervisor) == ["worker 0"]
    assert supervisor.num_replaced == 1
    supervisor.ended({"worker 1": exits.FAILED})  # it would fail again
    assert supervisor.failure is not None


@pytest.mark.parametrize("together", [False, True])
def test_a_chief_begins_anew_with_a_lost_server(with_chief: Supervisor, together: bool) -> None:
    for number in (1, 2):
        ends = [{"chief 0": exits.PEER_LOST}, {"ps 0": -signal.SIGKILL}]
        for end in [ends[0] | ends[1]] if together else reversed(ends):
            with_chief.ended(end)
        assert started_again(with_chief) == ["ps 0", "chief 0"]
        assert with_chief.num_replaced == number, "the chief's end counts with the server's"
    with_chief.ended({"chief 0": exits.PEER_LOST})
    assert started_again(with_chief) == []
    assert with_chief.failure is not None


def test_a_lost_chief_is_started_again(with_chief: Supervisor) -> None:
    with_chief.ended({"chief 0": -signal.SIGKILL})
    assert started_again(with_chief) == ["chief 0"]
    with_chief.ended({"worker 0": -signal.SIGKILL})
    assert started_again(with_chief) == ["worker 0"]
    with_chief.ended({"chief 0": exits.PEER_LOST, "worker 1": -signal.SIGKILL})
    assert started_again(with_chief) == []
    assert with_chief.failure is not None
    assert with_chief.failure.task == "chief 0"


@pytest.mark.parametrize("end", [("worker 0", 1), ("ps 0", 1), ("chief 0", 1)])
def test_other_ends_are_failures(with_chief: Supervisor, end: tuple[str, int]) -> None:
    with_chief.ended(dict([end]))
    assert with_chief.failure is not None
    assert (with_chief.failure.task, started_again(with_chief)) == (end[0], [])
    assert with_chief.signal_due() == signal.SIGTERM


def test_nobody_serves_a_chief_that_has_ended(with_chief: Supervisor, clock: HandClock) -> None:
    with_chief.ended({"chief 0": 0})
    assert with_chief.signal_due() is None
    assert with_chief.seconds_until_due() == SERVED_OUT_SECONDS
    with_chief.ended({"ps 0": -signal.SIGKILL})
    assert (started_again(with_chief), with_chief.failure) == ([], None)
    clock.time += SERVED_OUT_SECONDS
    assert with_chief.signal_due() == signal.SIGTERM
    with_chief.ended({"worker 0": -signal.SIGTERM, "worker 1": 0})
    assert with_chief.exit_code == 0
