"""The rules of scheduling: what runs where, what is retried, when an error is due."""

from __future__ import annotations

import random

import pytest

from stratagem.core.errors import UnavailableError
from stratagem.ps.dispatch import (
    MOST_LOSSES,
    Abort,
    Begun,
    Broken,
    Dispatch,
    DispatchError,
    Event,
    Failed,
    Finished,
    Forsaken,
    Freed,
    GaveUp,
    Instruction,
    Raised,
    Scheduled,
    Send,
    WorkerLost,
    WorkerUp,
)

ERROR = ValueError("of the closure")


def after(*events: Event) -> tuple[Dispatch, list[Instruction]]:
    """Return a machine after some events, and what it said to the last."""
    dispatch, instructions = Dispatch(), []
    for event in events:
        instructions = dispatch.handle(event)
        dispatch.validate()
    return dispatch, instructions


def test_closures_go_to_workers_in_order() -> None:
    dispatch, _ = after(Scheduled(0), Scheduled(1), Scheduled(2))
    assert dispatch.handle(WorkerUp(5)) == [Send(5, 0)]
    assert dispatch.handle(WorkerUp(6)) == [Send(6, 1)]
    assert dispatch.handle(Finished(6, 1)) == [Send(6, 2)]
    assert dispatch.handle(Finished(6, 2)) == []
    assert not dispatch.is_idle
    assert dispatch.handle(Finished(5, 0)) == []
    assert dispatch.is_idle
    assert dispatch.due is None


def test_nothing_begins_with_fewer_workers_than_the_least() -> None:
    dispatch = Dispatch(least=2)
    events: list[Event] = [Scheduled(0), Scheduled(1), Scheduled(2), WorkerUp(0)]
    assert [dispatch.handle(event) for event in events] == [[]] * 4
    assert dispatch.handle(WorkerUp(1)) == [Send(0, 0), Send(1, 1)]
    assert dispatch.handle(WorkerLost(0)) == []  # what it had waits with the rest
    assert dispatch.handle(Finished(1, 1)) == []
    dispatch.validate()
    assert not dispatch.has_enough_workers
    assert dispatch.handle(WorkerUp(2)) == [Send(1, 0), Send(2, 2)]
    dispatch.validate()


def test_a_slow_worker_does_not_hold_the_others() -> None:
    dispatch, _ = after(WorkerUp(0), WorkerUp(1), *(Scheduled(i) for i in range(10)))
    slow = dispatch.in_flight[0]
    for _ in range(9):
        running = dispatch.in_flight[1]
        assert running is not None
        dispatch.handle(Finished(1, running))
        dispatch.validate()
    assert dispatch.in_flight == {0: slow, 1: None}
    assert dispatch.counts["finished"] == 9


def test_what_a_lost_worker_had_runs_first_elsewhere() -> None:
    scheduled = [Scheduled(closure) for closure in range(4)]
    dispatch, instructions = after(WorkerUp(0), WorkerUp(1), *scheduled, WorkerLost(1), WorkerLost(0))
    assert instructions == []
    assert list(dispatch.queued) == [0, 1, 2, 3]
    assert dispatch.handle(WorkerUp(2)) == [Send(2, 0)]
    assert dispatch.counts["retried"] == 2
    assert dispatch.handle(WorkerUp(1)) == [Send(1, 1)]  # taken back
    assert dispatch.handle(WorkerUp(0)) == [Send(0, 2)]


def test_an_error_aborts_what_waits_and_is_due_when_nothing_runs() -> None:
    dispatch, instructions = after(
        WorkerUp(0), WorkerUp(1), Scheduled(0), Scheduled(1), Scheduled(2), Failed(0, 0, ERROR)
    )
    assert instructions == [Abort(2)]
    assert dispatch.due is None  # closure 1 runs
    assert dispatch.handle(Scheduled(3)) == [Abort(3)]
    dispatch.handle(Failed(1, 1, KeyError("later")))
    assert dispatch.due is ERROR
    dispatch.handle(Raised())
    assert dispatch.due is None
    assert dispatch.handle(Scheduled(4)) == [Send(0, 4)]
    dispatch.validate()


def test_what_is_given_up_is_not_waited_for_and_keeps_its_worker_busy() -> None:
    dispatch, instructions = after(
        WorkerUp(0), WorkerUp(1), Scheduled(0), Scheduled(1), Failed(0, 0, ERROR), GaveUp(1, 1)
    )
    assert instructions == [Abort(1)]
    assert (dispatch.running, dispatch.due) == ([], ERROR)
    dispatch.handle(Raised())
    assert dispatch.handle(Scheduled(2)) == [Send(0, 2)]
    assert dispatch.handle(Scheduled(3)) == []
    dispatch.validate()
    assert dispatch.handle(Freed(1, 1)) == [Send(1, 3)]
    dispatch.validate()
    assert dispatch.counts["aborted"] == 1


def test_a_worker_lost_with_what_it_has_given_up_gives_nothing_back() -> None:
    dispatch, instructions = after(
        WorkerUp(0), WorkerUp(1), Scheduled(0), Scheduled(1), Failed(0, 0, ERROR), GaveUp(1, 1), WorkerLost(1)
    )
    assert instructions == []
    assert (dispatch.given_up, dispatch.counts["retried"]) == (set(), 0)


def test_a_worker_lost_after_an_error_is_not_waited_for() -> None:
    dispatch, instructions = after(
        WorkerUp(0), WorkerUp(1), Scheduled(0), Scheduled(1), Failed(0, 0, ERROR), WorkerLost(1)
    )
    assert instructions == [Abort(1)]
    assert dispatch.due is ERROR


def test_a_broken_cluster_stays_broken_until_another_term_begins() -> None:
    error = UnavailableError("ps 0")
    dispatch, instructions = after(WorkerUp(0), Scheduled(0), Scheduled(1), Failed(0, 0, ERROR), Broken(error))
    assert instructions == []
    assert dispatch.due is error
    dispatch.handle(Raised())
    assert dispatch.due is error
    assert dispatch.handle(Scheduled(2)) == [Abort(2)]
    dispatch.validate()
    dispatch.handle(Begun())
    assert (dispatch.handle(Scheduled(3)), dispatch.handle(WorkerUp(0))) == ([], [Send(0, 3)])
    dispatch.validate()
    assert (dispatch.handle(Scheduled(4)), dispatch.handle(Begun())) == ([], [Abort(3), Abort(4)])
    assert (dispatch.is_idle, dispatch.due, dispatch.in_flight) == (True, None, {})
    dispatch.validate()


def test_without_workers_what_waits_is_given_up_once() -> None:
    error = UnavailableError("No worker could be reached")
    dispatch, instructions = after(Scheduled(0), Forsaken(error))
    assert (instructions, dispatch.due) == ([Abort(0)], error)
    dispatch.handle(Raised())
    assert (dispatch.handle(Scheduled(1)), dispatch.handle(WorkerUp(0))) == ([], [Send(0, 1)])
    dispatch.validate()


def test_a_closure_that_ends_its_workers_is_given_up() -> None:
    dispatch, instructions = after(Scheduled(0), Scheduled(1))
    for worker in range(MOST_LOSSES):
        assert dispatch.handle(WorkerUp(worker)) == [Send(worker, 0)]
        instructions = dispatch.handle(WorkerLost(worker))
        dispatch.validate()
    assert instructions == [Abort(0), Abort(1)]
    assert isinstance(dispatch.due, UnavailableError)
    assert "sent to 10 workers" in str(dispatch.due)


@pytest.mark.parametrize(
    "events",
    [
        (Finished(0, 0),),
        (WorkerLost(0),),
        (WorkerUp(0), WorkerUp(0)),
        (WorkerUp(0), Finished(0, 3)),
        (Raised(),),
        (WorkerUp(0), Scheduled(0), Finished(0, 0), Finished(0, 0)),
        (WorkerUp(0), Scheduled(0), GaveUp(0, 0), Finished(0, 0)),
        (WorkerUp(0), Scheduled(0), Freed(0, 0)),
        (WorkerUp(0), GaveUp(0, 0)),
    ],
)
def test_what_cannot_be_tells_the_story(events: tuple[Event, ...]) -> None:
    *before, last = events
    dispatch, _ = after(*before)
    with pytest.raises(DispatchError) as error:
        dispatch.handle(last)
    assert str(last) in str(error.value)
    assert all(str(event) in str(error.value) for event in before)


def random_run(seed: int, steps: int = 300) -> Dispatch:
    """Let workers come, go, finish and fail at random."""
    rng = random.Random(seed)
    dispatch, number = Dispatch(), 0
    for _ in range(steps):
        up = list(dispatch.in_flight)
        busy = [(worker, closure) for worker, closure in dispatch.in_flight.items() if closure in dispatch.running]
        left = [(worker, closure) for worker, closure in dispatch.in_flight.items() if closure in dispatch.given_up]
        kind = rng.random()
        if kind < 0.45:
            event: Event = Scheduled(number)
            number += 1
        elif kind < 0.85 and busy:
            event = Finished(*rng.choice(busy))
        elif kind < 0.88 and busy:
            event = Failed(*rng.choice(busy), ERROR)
        elif kind < 0.88 and left:
            event = Freed(*rng.choice(left))  # pyright: ignore[reportArgumentType]
        elif dispatch.error is not None and busy and rng.random() < 0.3:
            event = GaveUp(*rng.choice(busy))
        elif kind < 0.89:
            event = rng.choice((Broken(ERROR), Begun(), Begun(), Forsaken(ERROR)))
        elif kind < 0.94 and up:
            event = WorkerLost(rng.choice(up))
        elif dispatch.due is not None:
            event = Raised()
        else:
            event = WorkerUp(rng.choice([w for w in range(len(up) + 1) if w not in up]))
        dispatch.handle(event)
        dispatch.validate()
    return dispatch


@pytest.mark.parametrize("seed", range(30))
def test_any_run_keeps_the_rules_and_can_be_replayed(seed: int) -> None:
    dispatch = random_run(seed)
    again = Dispatch()
    for event, instructions in dispatch.story:
        assert again.handle(event) == instructions
    assert (again.queued, again.in_flight, again.counts) == (dispatch.queued, dispatch.in_flight, dispatch.counts)


def test_it_remembers_only_so_much() -> None:
    dispatch, _ = after(WorkerUp(0))
    for number in range(5000):
        dispatch.handle(Scheduled(number))
        dispatch.handle(Finished(0, number))
    assert len(dispatch.story) == 1000
    assert not dispatch.losses
    assert dispatch.is_idle
