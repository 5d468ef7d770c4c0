"""Every transition of the protocol of membership: the table of docs/elastic.md, row by row."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratagem.core import exits
from stratagem.elastic.events import (
    Action,
    Beat,
    Begun,
    Closed,
    End,
    Event,
    Failed,
    Finished,
    Form,
    Formed,
    Go,
    Joined,
    KillMember,
    Leaving,
    Lost,
    Prepare,
    Prepared,
    Say,
    Stop,
    StopAfter,
    Stopped,
    Tick,
)
from stratagem.elastic.limits import Limits
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.protocol import advance
from stratagem.elastic.state import Phase, Rules, State
from stratagem.elastic.world import Member, World

LIMITS = Limits()


def member(number: int, is_spare: bool = False) -> Member:
    return Member(number, "a", 100 + number, f"a:{number}", is_spare)


class Run:
    """A state that events move. What was not silent long enough to matter is said to have been heard."""

    def __init__(self, wanted: int = 3, least: int = 1, most: int | None = None) -> None:
        self.state = State(Rules(wanted, ElasticOptions(least, most, below_min_seconds=60.0)))
        self.now = 100.0
        self.state = State(self.state.rules, since=self.now)
        self.said: list[str] = []
        self.preparing: list[Prepare] = []

    def hear(self, *events: Event) -> list[Action]:
        """Return what is done at the last of some events, but for lines, and those who are told to prepare."""
        actions: list[Action] = []
        for event in events:
            self.state, actions = advance(self.state, event, self.now)
            self.said += [action.line for action in actions if isinstance(action, Say)]
            self.preparing += [action for action in actions if isinstance(action, Prepare)]
        return [action for action in actions if not isinstance(action, Say | Prepare)]

    def later(self, seconds: float) -> list[Action]:
        """Return what is done at a tick after so many seconds, in which all have said that they live."""
        self.now += seconds
        for number, place in list(self.state.places.items()):
            self.hear(Beat(number, place.step, place.is_busy))
        return self.hear(Tick())

    def start(self, *spares: int) -> Run:
        """Let the wanted workers join, and form and run world 1."""
        self.hear(*(Joined(member(number, is_spare=True)) for number in spares))
        self.hear(*(Joined(member(number)) for number in range(1, self.state.rules.wanted + 1)))
        self.form()
        self.hear(*(Prepared(number) for number in spares))
        return self

    def join(self, *numbers: int, is_spare: bool = False) -> Run:
        """Let members join a run that has begun, and run their programs up to training."""
        self.hear(*(Joined(member(number, is_spare)) for number in numbers))
        self.hear(*(Prepared(number) for number in numbers))
        return self

    def form(self) -> Run:
        """Let all members of the world that forms do so."""
        assert self.state.world is not None
        self.hear(*(Formed(number, self.state.world.number) for number in self.state.world.numbers))
        assert self.state.phase is Phase.RUNNING
        return self

    def stop(self, steps: dict[int, int]) -> list[Action]:
        """Let members stop."""
        assert self.state.world is not None
        return self.hear(*(Stopped(number, self.state.world.number, step) for number, step in steps.items()))


def world(number: int, *numbers: int, donor: int = 0, step: int = 0, spares: tuple[int, ...] = ()) -> World:
    return World(number, tuple(member(each, each in spares) for each in numbers), donor, step)


def lost(number: int, how: str = "was ended by SIGKILL") -> Lost:
    return Lost(number, how, has_exited=True)


def dead(rank: int, number: int, step: int, how: str = "was ended by SIGKILL") -> str:
    """Return why a world changes, of which a member has died."""
    return f"worker {rank} (host a, pid {100 + number}) {how}, last seen after step {step}"


LEAVES = "worker 0 (host a, pid 101) leaves on purpose"


def given_up(to: tuple[int, ...], world: int, *causes: str) -> Stop:
    """Return the order to those who are left of a world: some may be in its exchange, to evaluate say."""
    return Stop(to, world, True, "; ".join(causes))


# Cores -----------------------------------------------------------------------------------------------


def test_members_need_their_cores_until_they_have_completed_a_step() -> None:
    run = Run(2)
    assert not run.state.is_forming(run.now)
    run.start(9)
    assert run.state.is_forming(run.now)  # they compile
    run.hear(Beat(1, 1))
    assert not run.state.is_forming(run.now)
    run.hear(lost(2))
    assert run.state.phase is Phase.STOPPING
    assert run.state.is_forming(run.now)
    run.stop({1: 1})
    assert run.state.is_forming(run.now)
    run.form()
    run.hear(Beat(1, 1), Beat(9, 1))
    assert run.state.is_forming(run.now + LIMITS.first_step - 1)
    assert not run.state.is_forming(run.now + LIMITS.first_step)  # they evaluate, or save
    run.hear(Beat(9, 2))
    assert not run.state.is_forming(run.now)


# Gathering -------------------------------------------------------------------------------------------


def test_gathering_forms_the_first_world_when_the_wanted_workers_are_there() -> None:
    run = Run(2)
    assert run.hear(Joined(member(1))) == []
    assert run.hear(Joined(member(2, is_spare=True))) == []
    assert run.hear(Joined(member(3))) == [Form((1, 3), world(1, 1, 3))]
    assert run.state.phase is Phase.FORMING


def test_gathering_goes_on_with_fewer_after_the_limit() -> None:
    run = Run(3, least=2)
    run.hear(Joined(member(1)), Joined(member(2)))
    assert run.later(LIMITS.start - 1) == []
    assert run.later(1) == [Form((1, 2), world(1, 1, 2))]


def test_gathering_takes_spares_for_missing_workers_after_the_limit() -> None:
    run = Run(2, least=2)
    run.hear(Joined(member(1)), Joined(member(2, is_spare=True)), Joined(member(3, is_spare=True)))
    assert run.later(LIMITS.start) == [Form((1, 2), world(1, 1, 2, spares=(2,)))]


def test_gathering_ends_with_too_few() -> None:
    run = Run(3, least=2)
    run.hear(Joined(member(1)))
    reason = "1 worker came within 300 s; 3 are wanted, 2 are the least"
    assert run.later(LIMITS.start) == [End((1,), exits.PEER_LOST, reason)]
    assert run.said == [f"The run ends with exit code 43: {reason}."]


def test_gathering_ends_at_once_where_nobody_came() -> None:
    run = Run(1)
    assert run.later(LIMITS.start) == []
    assert (run.state.phase, run.state.code) == (Phase.ENDED, exits.PEER_LOST)


def test_gathering_loses_a_member() -> None:
    run = Run(2)
    run.hear(Joined(member(1)))
    assert run.hear(lost(1)) == []
    assert run.said == ["member 1 (host a, pid 101) was ended by SIGKILL; it was in no world."]
    assert run.hear(Joined(member(2))) == []
    assert run.hear(Joined(member(3))) == [Form((2, 3), world(1, 2, 3))]


def test_gathering_lets_go_who_leaves() -> None:
    run = Run(2)
    run.hear(Joined(member(1)))
    assert run.hear(Leaving(1, 5.0)) == [End((1,), exits.PREEMPTED, "it left on purpose, the others go on")]
    assert run.state.places == {}


def test_gathering_ends_at_an_exception() -> None:
    run = Run(2)
    run.hear(Joined(member(1)))
    reason = "member 1 (host a, pid 101) failed: ValueError: no data"
    assert run.hear(Failed(1, "ValueError: no data")) == [End((1,), exits.FAILED, reason)]


# Forming ---------------------------------------------------------------------------------------------


def test_forming_goes_when_all_have_formed() -> None:
    run = Run(2)
    run.hear(Joined(member(1)), Joined(member(2)))
    assert run.hear(Formed(1, 1)) == []
    assert run.hear(Formed(2, 1)) == [Go((1, 2), 1)]
    assert run.state.phase is Phase.RUNNING
    assert run.said == ["World 1: 2 workers from step 1."]


def test_forming_begins_again_without_the_dead() -> None:
    run = Run(3)
    run.hear(*(Joined(member(number)) for number in (1, 2, 3)), Formed(2, 1))
    assert run.hear(lost(1)) == [given_up((2, 3), 1, dead(0, 1, 0)), Form((2, 3), world(2, 2, 3))]
    assert run.hear(Formed(2, 1)) == []  # of the old world: ignored
    assert run.hear(Formed(3, 2)) == []
    assert run.hear(Formed(2, 2)) == [Go((2, 3), 2)]


def test_forming_kills_who_is_late() -> None:
    run = Run(3)
    run.hear(*(Joined(member(number)) for number in (1, 2, 3)), Formed(1, 1), Formed(2, 1))
    assert run.later(LIMITS.form - 1) == []
    assert run.later(1) == [
        KillMember(member(3), "did not come into the new world within 120 s"),
        given_up((1, 2), 1, dead(2, 3, 0, "did not come into the new world within 120 s")),
        Form((1, 2), world(2, 1, 2)),
    ]


def test_forming_waits_longer_for_who_compiles() -> None:
    run = Run(2)
    run.hear(Joined(member(1)), Joined(member(2)), Formed(1, 1), Beat(2, 0, is_busy=True))
    assert run.later(LIMITS.compiling - 1) == []
    assert run.later(1) == [
        KillMember(member(2), "did not come into the new world within 120 s"),
        given_up((1,), 1, dead(1, 2, 0, "did not come into the new world within 120 s")),
        Form((1,), world(2, 1)),
    ]


def test_forming_takes_in_a_spare_for_the_dead() -> None:
    run = Run(2)
    run.hear(Joined(member(9, is_spare=True)), Joined(member(1)), Joined(member(2)))
    form = Form((9, 2), world(2, 9, 2, donor=1, spares=(9,)))
    assert run.hear(lost(1)) == [given_up((2,), 1, dead(0, 1, 0)), form]


def test_forming_falls_back_to_the_state_that_is_left() -> None:
    """The only one that holds the greatest step dies before it has given it to another."""
    run = Run(3).start()
    run.hear(lost(1))
    assert run.stop({2: 8, 3: 7}) == [Form((2, 3), world(2, 2, 3, step=8))]
    causes = dead(0, 1, 0), dead(0, 2, 8)
    assert run.hear(lost(2)) == [given_up((3,), 2, *causes), Form((3,), world(3, 3, step=7))]


def test_forming_goes_on_from_the_donor_that_has_given_the_state() -> None:
    run = Run(3).start()
    run.hear(lost(1))
    run.stop({2: 8, 3: 7})
    run.hear(Formed(3, 2))
    causes = dead(0, 1, 0), dead(0, 2, 8)
    assert run.hear(lost(2)) == [given_up((3,), 2, *causes), Form((3,), world(3, 3, step=8))]


def test_forming_ends_where_nobody_holds_the_state() -> None:
    run = Run(2).start(9)
    run.hear(lost(1))
    run.stop({2: 5})
    (end,) = run.hear(lost(2))
    assert isinstance(end, End)
    assert (end.to, end.code) == ((9,), exits.PEER_LOST)
    assert end.reason.startswith("nobody is left who holds the state: worker 0 (host a, pid 101) was ended by SIGKILL")


def test_forming_with_too_few_left_waits() -> None:
    run = Run(2, least=2)
    run.hear(Joined(member(1)), Joined(member(2)))
    cause = "worker 0 (host a, pid 101) was ended by SIGKILL, last seen after step 0"
    assert run.hear(lost(1)) == [Stop((2,), 1, True, cause)]
    assert run.state.phase is Phase.WAITING


def test_forming_marks_who_leaves_and_lets_it_go_once_it_runs() -> None:
    run = Run(2)
    run.hear(Joined(member(1)), Joined(member(2)))
    assert run.hear(Leaving(1, 30.0)) == []
    run.hear(Formed(1, 1))
    assert run.hear(Formed(2, 1)) == [
        Go((1, 2), 1),
        Stop((1, 2), 1, False, "worker 0 (host a, pid 101) leaves on purpose"),
    ]


# Running: faults -------------------------------------------------------------------------------------

KILLED = "worker 1 (host a, pid 102) was ended by SIGKILL, last seen after step 0"


def test_running_cuts_what_is_in_flight_when_a_member_dies() -> None:
    run = Run(3).start()
    assert run.hear(lost(2)) == [Stop((1, 3), 1, True, KILLED)]
    assert run.state.phase is Phase.STOPPING
    assert run.stop({1: 17}) == []
    assert run.stop({3: 18}) == [Form((1, 3), world(2, 1, 3, donor=1, step=18))]
    run.now += 0.25
    run.form()
    assert run.said[-1] == f"{KILLED}. World 2: 2 workers from step 19, 0.2 s later."


def test_running_kills_one_whose_end_is_not_sure() -> None:
    run = Run(2).start()
    assert run.hear(Lost(2, "is stopped by a signal")) == [
        KillMember(member(2), "is stopped by a signal"),
        Stop((1,), 1, True, "worker 1 (host a, pid 102) is stopped by a signal, last seen after step 0"),
    ]


def test_running_takes_one_that_is_silent_for_dead() -> None:
    run = Run(2).start()
    run.now += LIMITS.silent - 0.1
    assert run.hear(Beat(1, 4), Tick()) == []
    run.now += 0.1
    assert run.hear(Tick())[0] == KillMember(member(2), "was silent for 5 s")


def test_running_lets_a_spare_take_the_rank_of_the_dead() -> None:
    run = Run(3).start(9)
    run.hear(lost(1))
    assert run.stop({2: 4, 3: 4}) == [Form((9, 2, 3), world(2, 9, 2, 3, donor=1, step=4, spares=(9,)))]


def test_running_ends_where_all_have_died() -> None:
    run = Run(2).start(9)
    run.hear(lost(1))
    (end,) = run.hear(lost(2))
    assert isinstance(end, End)
    assert (end.to, end.code) == ((9,), exits.PEER_LOST)


def test_running_cuts_where_members_have_lost_each_other_and_all_live() -> None:
    run = Run(3).start()
    assert run.stop({2: 5}) == []
    assert run.later(LIMITS.broken - 0.1) == []
    reason = "worker 1 (host a, pid 102) lost the connection to another"
    assert run.later(0.1) == [Stop((1, 2, 3), 1, True, reason)]
    assert run.stop({1: 4, 2: 5, 3: 5}) == [Form((1, 2, 3), world(2, 1, 2, 3, donor=1, step=5))]
    run.form()
    assert run.said[-1].startswith(f"{reason}. World 2: 3 workers from step 6, ")
    assert run.later(2 * LIMITS.broken) == []


def test_running_waits_for_the_death_that_members_have_noticed() -> None:
    run = Run(3).start()
    run.stop({1: 0, 2: 0})
    reason = "worker 2 (host a, pid 103) was ended by SIGKILL, last seen after step 0"
    assert run.hear(lost(3)) == [Stop((1, 2), 1, True, reason)]
    assert run.stop({1: 0, 2: 0}) == [Form((1, 2), world(2, 1, 2))]
    run.form()
    assert run.later(2 * LIMITS.broken) == []


def test_running_does_not_cut_where_others_have_ended_their_programs() -> None:
    run = Run(2).start()
    run.hear(Finished(1, 1, 5))
    run.stop({2: 5})
    assert run.later(2 * LIMITS.broken) == []


def test_running_loses_a_spare() -> None:
    run = Run(2).start(9)
    assert run.hear(lost(9)) == []
    assert run.state.phase is Phase.RUNNING
    assert run.said[-1] == "spare 9 (host a, pid 109) was ended by SIGKILL; it was in no world."


def test_running_ends_at_an_exception() -> None:
    run = Run(2).start(9)
    (end,) = run.hear(Failed(2, "ValueError: shapes"))
    assert end == End((9, 1, 2), exits.FAILED, "worker 1 (host a, pid 102) failed: ValueError: shapes")
    assert run.state.phase is Phase.ENDING


def test_running_goes_on_where_a_member_in_no_world_fails() -> None:
    run = Run(2).start(9)
    assert run.hear(Failed(9, "ImportError: x")) == [End((9,), exits.FAILED, "ImportError: x")]
    assert run.state.phase is Phase.RUNNING
    assert 9 not in run.state.places


# Preparing -------------------------------------------------------------------------------------------


def test_those_who_wait_prepare_once_when_a_step_is_completed() -> None:
    """Before, the others compile, and need their cores."""
    run = Run(2)
    run.hear(*(Joined(member(number, number == 9)) for number in (9, 1, 2)), Formed(1, 1), Formed(2, 1))
    run.later(1)
    assert run.preparing == []
    run.hear(Beat(1, 1), Tick(), Joined(member(8)), Tick())
    run.later(100)
    assert run.preparing == [Prepare((9,), world(1, 1, 2)), Prepare((8,), world(1, 1, 2))]


def test_those_who_wait_prepare_although_no_step_comes() -> None:
    run = Run(2).start(9)
    run.later(LIMITS.first_step - 0.1)
    assert run.preparing == []
    run.later(0.1)
    assert run.preparing == [Prepare((9,), world(1, 1, 2))]


def test_one_that_joins_while_a_world_forms_prepares_later() -> None:
    run = Run(3).start()
    run.hear(lost(1), Joined(member(4)), Tick())
    run.stop({2: 5, 3: 5})
    assert run.preparing == []
    run.form().hear(Beat(2, 6), Tick())
    assert run.preparing == [Prepare((4,), world(2, 2, 3, step=5))]


def test_nobody_prepares_when_training_is_over() -> None:
    run = Run(2).start(9)
    run.hear(Beat(1, 5), Finished(1, 1, 5), Tick())
    assert run.preparing == []


def test_those_who_are_prepared_come_before_those_who_are_not() -> None:
    run = Run(2, least=2).start()
    run.hear(Joined(member(8, is_spare=True)))
    run.join(9, is_spare=True).hear(lost(1))
    assert run.stop({2: 5}) == [Form((9, 2), world(2, 9, 2, donor=1, step=5, spares=(9,)))]


def test_one_that_is_not_prepared_takes_a_place_where_too_few_would_be_left() -> None:
    run = Run(2, least=2).start()
    run.hear(Joined(member(9, is_spare=True)), lost(1))
    assert run.stop({2: 5}) == [Form((9, 2), world(2, 9, 2, donor=1, step=5, spares=(9,)))]


def test_the_others_go_on_without_one_that_is_not_prepared_if_they_are_enough() -> None:
    run = Run(2, least=1).start()
    run.hear(Joined(member(9, is_spare=True)), lost(1))
    assert run.stop({2: 5}) == [Form((2,), world(2, 2, step=5))]
    run.form().hear(Prepared(9))
    assert run.later(LIMITS.settle) == [Stop((2,), 2, False, "1 more can take part")]


def test_all_who_leave_wait_for_one_that_prepares_as_long_as_they_can() -> None:
    run = Run(2, least=2).start()
    run.hear(Joined(member(8)), Joined(member(9)), Leaving(1, 30.0))
    assert run.hear(Leaving(2, 30.0)) == []
    assert run.later(20) == []
    run.hear(Prepared(8))
    run.hear(Prepared(9))
    leave = "worker 0 (host a, pid 101), worker 1 (host a, pid 102) leave on purpose"
    assert run.later(0.1) == [Stop((1, 2), 1, False, leave)]


def test_all_who_leave_end_the_run_in_time_where_nobody_is_prepared() -> None:
    run = Run(2, least=2).start()
    run.hear(Joined(member(8)), Joined(member(9)), Leaving(1, 30.0), Leaving(2, 30.0))
    assert run.later(30 - LIMITS.reserve - 0.1) == []
    reason = "all who hold the state leave: worker 0 (host a, pid 101), worker 1 (host a, pid 102)"
    assert run.later(0.1) == [Stop((1, 2), 1, False, reason)]
    assert run.hear(Begun(1, 1, 5), Begun(2, 1, 5)) == [StopAfter((1, 2), 1, 6, saves=True)]


# Running: planned changes ----------------------------------------------------------------------------


def test_running_takes_in_a_joiner_behind_a_common_step() -> None:
    run = Run(2, most=3).start()
    run.hear(Joined(member(3)))
    assert run.later(100) == []
    assert run.hear(Prepared(3)) == []
    assert run.later(LIMITS.settle - 0.1) == []
    assert run.later(0.1) == [Stop((1, 2), 1, False, "1 more can take part")]
    assert run.hear(Begun(1, 1, 6)) == []
    assert run.hear(Begun(2, 1, 7)) == [StopAfter((1, 2), 1, 7)]
    assert run.stop({1: 7}) == []
    assert run.stop({2: 7}) == [Form((1, 2, 3), world(2, 1, 2, 3, step=7))]


def test_running_takes_joiners_in_together() -> None:
    run = Run(2, most=4).start()
    run.join(3)
    run.later(0.9)
    run.join(4)
    assert run.later(0.9) == []
    assert run.later(0.1) == [Stop((1, 2), 1, False, "2 more can take part")]


def test_running_leaves_a_joiner_waiting_where_the_world_is_full() -> None:
    run = Run(2).start().join(3)
    assert run.later(10) == []
    assert [each.number for each in run.state.waiting] == [3]


def test_running_leaves_a_spare_waiting_unless_somebody_is_missing() -> None:
    run = Run(2, most=4).start(9)
    assert run.later(10) == []
    run.hear(lost(9), lost(2))
    run.stop({1: 3})
    run.form()
    run.join(8, is_spare=True)
    assert run.later(1) == [Stop((1,), 2, False, "1 more can take part")]


def test_running_lets_a_member_leave_behind_a_common_step() -> None:
    run = Run(2).start()
    assert run.hear(Leaving(1, 30.0)) == [Stop((1, 2), 1, False, LEAVES)]
    run.hear(Begun(1, 1, 5))
    assert run.hear(Begun(2, 1, 5)) == [StopAfter((1, 2), 1, 5)]
    run.stop({1: 5})
    assert run.stop({2: 5}) == [
        End((1,), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((2,), 1, LEAVES),
        Form((2,), world(2, 2, step=5)),
    ]


def test_running_lets_a_spare_leave() -> None:
    run = Run(2).start(9)
    assert run.hear(Leaving(9, 30.0)) == [End((9,), exits.PREEMPTED, "it left on purpose, the others go on")]


def test_spares_take_the_places_where_all_leave() -> None:
    run = Run(2).start(8, 9)
    run.hear(Leaving(1, 30.0))
    run.hear(Leaving(2, 30.0), Begun(1, 1, 5), Begun(2, 1, 5))
    run.stop({1: 5})
    assert run.stop({2: 5}) == [  # the state of one of them is needed once more
        End((2,), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((1,), 1, LEAVES),
        Form((1, 8), world(2, 1, 8, step=5, spares=(8,))),
    ]
    run.hear(Formed(1, 2))
    assert [type(each) for each in run.hear(Formed(8, 2))] == [Go, Stop]
    run.hear(Begun(1, 2, 5), Begun(8, 2, 5))
    run.stop({1: 5})
    assert run.stop({8: 5}) == [
        End((1,), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((8,), 2, LEAVES),
        Form((9, 8), world(3, 9, 8, donor=1, step=5, spares=(8, 9))),
    ]


def test_all_that_leave_save_behind_one_more_step() -> None:
    run = Run(2).start()
    names = "worker 0 (host a, pid 101), worker 1 (host a, pid 102)"
    run.hear(Leaving(1, 30.0))  # a planned change, until the other leaves too
    run.hear(Leaving(2, 30.0), Begun(1, 1, 5))
    assert run.hear(Begun(2, 1, 6)) == [StopAfter((1, 2), 1, 6)]
    run.stop({1: 6})
    assert run.stop({2: 6}) == [Go((1, 2), 1)]
    reason = f"all who hold the state leave: {names}"
    assert run.later(0.1) == [Stop((1, 2), 1, False, reason)]
    run.hear(Begun(1, 1, 6))
    assert run.hear(Begun(2, 1, 7)) == [StopAfter((1, 2), 1, 8, saves=True)]
    run.stop({1: 8})
    assert run.stop({2: 8}) == [End((1, 2), exits.PREEMPTED, reason)]


def test_all_that_leave_at_once_save_behind_one_more_step() -> None:
    run = Run(1).start()
    reason = "all who hold the state leave: worker 0 (host a, pid 101)"
    assert run.hear(Leaving(1, 30.0)) == [Stop((1,), 1, False, reason)]
    assert run.hear(Begun(1, 1, 5)) == [StopAfter((1,), 1, 6, saves=True)]
    assert run.later(29.9) == []
    assert run.later(0.1) == [End((1,), exits.PREEMPTED, f"{reason}; not all came to the step behind which they save")]


def test_a_last_step_is_done_again_by_those_who_are_left() -> None:
    run = Run(2).start()
    run.hear(Leaving(1, 30.0))
    run.hear(Leaving(2, 30.0), Begun(1, 1, 5), Begun(2, 1, 5))
    run.stop({1: 5, 2: 5})
    run.later(0.1)
    run.hear(Begun(1, 1, 5), Begun(2, 1, 5))
    (cut,) = run.hear(lost(2))
    assert isinstance(cut, Stop)
    assert cut.cut
    assert run.stop({1: 5}) == [Form((1,), world(2, 1, step=5))]
    assert [type(each) for each in run.hear(Formed(1, 2))] == [Go, Stop]
    assert run.hear(Begun(1, 2, 5)) == [StopAfter((1,), 2, 6, saves=True)]
    (end,) = run.stop({1: 6})
    assert isinstance(end, End)
    assert end.code == exits.PREEMPTED


def test_a_last_step_that_is_not_left_ends_well() -> None:
    run = Run(1).start()
    run.hear(Leaving(1, 30.0), Begun(1, 1, 5))
    assert run.hear(Finished(1, 1, 5)) == [End((1,), 0, "training has come to its end")]


def test_one_that_leaves_stays_while_too_few_would_be_left() -> None:
    run = Run(2, least=2).start()
    assert run.hear(Leaving(1, 30.0)) == []
    assert run.later(20) == []
    run.hear(Joined(member(9, is_spare=True)))
    assert run.later(0.1) == []
    run.hear(Prepared(9))
    assert run.later(0.1) == [Stop((1, 2), 1, False, LEAVES)]
    run.hear(Begun(1, 1, 5), Begun(2, 1, 5))
    run.stop({1: 5})
    assert run.stop({2: 5}) == [
        End((1,), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((2,), 1, LEAVES),
        Form((9, 2), world(2, 9, 2, donor=1, step=5, spares=(9,))),
    ]


def test_one_that_leaves_goes_while_its_machine_is_still_there() -> None:
    run = Run(2, least=2).start()
    run.hear(Leaving(1, 30.0))
    assert run.later(30 - LIMITS.reserve - 0.1) == []
    assert [type(each) for each in run.later(0.1)] == [Stop]
    run.hear(Begun(1, 1, 5), Begun(2, 1, 5))
    run.stop({1: 5})
    end = End((1,), exits.PREEMPTED, "it left on purpose, the others go on")
    assert run.stop({2: 5}) == [end, given_up((2,), 1, LEAVES)]
    assert run.state.phase is Phase.WAITING


# Stopping --------------------------------------------------------------------------------------------


def test_stopping_kills_who_does_not_answer() -> None:
    run = Run(3).start()
    run.hear(lost(2))
    run.stop({1: 5})
    assert run.later(LIMITS.stop - 0.1) == []
    assert run.later(0.1) == [
        KillMember(member(3), "did not stop within 10 s"),
        Form((1,), world(2, 1, step=5)),
    ]


def test_stopping_waits_longer_for_who_compiles() -> None:
    run = Run(2).start()
    run.hear(Beat(1, 0, is_busy=True), lost(2))
    assert run.later(LIMITS.compiling - 1) == []
    assert run.stop({1: 0}) == [Form((1,), world(2, 1))]


def test_stopping_goes_on_without_one_that_dies_meanwhile() -> None:
    run = Run(3).start()
    run.hear(lost(2))
    run.stop({1: 5})
    assert run.hear(lost(3)) == [Form((1,), world(2, 1, step=5))]


def test_stopping_ignores_reports_of_another_world() -> None:
    run = Run(2).start()
    run.hear(lost(2))
    assert run.hear(Stopped(1, 7, 99), Begun(1, 1, 99), Formed(1, 1)) == []
    assert run.stop({1: 5}) == [Form((1,), world(2, 1, step=5))]


def test_a_planned_stop_becomes_a_cut_when_a_member_dies() -> None:
    run = Run(3, most=4).start().join(4)
    run.later(1)
    run.hear(Begun(1, 1, 5), Begun(2, 1, 5), Begun(3, 1, 5))
    run.stop({1: 5})
    (stop,) = run.hear(lost(3))
    assert isinstance(stop, Stop)
    assert (stop.to, stop.cut) == ((1, 2), True)  # worker 0 has stopped, and may evaluate
    assert run.stop({2: 4}) == [Form((1, 2, 4), world(2, 1, 2, 4, step=5))]  # the joiner takes the place


def test_a_planned_stop_becomes_a_cut_after_its_limit() -> None:
    run = Run(2, most=3).start().join(3)
    run.later(1)
    run.hear(Begun(1, 1, 5))
    assert run.later(LIMITS.planned - 1) == []
    assert run.later(1) == [Stop((1, 2), 1, True, "1 more can take part")]
    run.stop({1: 5})
    assert run.stop({2: 5}) == [Form((1, 2, 3), world(2, 1, 2, 3, step=5))]


def test_a_planned_stop_becomes_a_cut_when_the_one_that_leaves_must_go() -> None:
    run = Run(2).start()
    run.hear(Leaving(1, 2.0))
    assert run.later(1.9) == []
    assert run.later(0.2) == [Stop((1, 2), 1, True, "worker 0 (host a, pid 101) leaves on purpose")]


def test_one_that_leaves_stays_while_it_alone_holds_the_state() -> None:
    run = Run(3).start()
    run.hear(Leaving(1, 30.0), lost(3))
    run.stop({1: 8})
    assert run.stop({2: 7}) == [Form((1, 2), world(2, 1, 2, step=8))]
    run.hear(Formed(1, 2))
    go, stop = run.hear(Formed(2, 2))
    assert go == Go((1, 2), 2)
    assert isinstance(stop, Stop)
    assert not stop.cut
    run.hear(Begun(1, 2, 8), Begun(2, 2, 8))
    run.stop({1: 8})
    assert run.stop({2: 8}) == [
        End((1,), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((2,), 2, LEAVES),
        Form((2,), world(3, 2, step=8)),
    ]


def test_a_planned_stop_is_called_off_when_its_joiner_has_died() -> None:
    run = Run(2, most=3).start().join(3)
    run.later(1)
    run.hear(lost(3), Begun(1, 1, 5), Begun(2, 1, 5))
    run.stop({1: 5})
    assert run.stop({2: 5}) == [Go((1, 2), 1)]
    assert run.state.phase is Phase.RUNNING
    assert run.state.world == world(1, 1, 2)


def test_a_planned_stop_is_called_off_when_training_is_over() -> None:
    run = Run(2, most=3).start().join(3)
    run.later(1)
    run.hear(Finished(1, 1, 9))
    assert run.hear(Begun(2, 1, 9)) == [StopAfter((2,), 1, 9)]
    assert run.stop({2: 9}) == [Go((2,), 1)]
    assert run.hear(Finished(2, 1, 9)) == [End((1, 2, 3), 0, "training has come to its end")]


def test_a_cut_that_crosses_the_end_of_a_program_ends_the_run() -> None:
    run = Run(3).start()
    run.hear(lost(3), Finished(1, 1, 9))
    (end,) = run.stop({2: 8})
    assert isinstance(end, End)
    assert (end.to, end.code) == ((1, 2), 0)


# Waiting ---------------------------------------------------------------------------------------------


def waiting() -> Run:
    run = Run(2, least=2).start()
    run.hear(lost(2))
    assert run.stop({1: 5}) == []
    assert run.state.phase is Phase.WAITING
    assert run.said[-1] == (
        f"{KILLED}. 1 worker left, 2 are the least: they hold their state and wait for others, 60 s at most."
    )
    return run


def test_waiting_goes_on_when_enough_have_come() -> None:
    run = waiting()
    assert run.hear(Joined(member(7))) == [Form((1, 7), world(2, 1, 7, step=5))]


def test_waiting_ends_after_its_limit_and_saves() -> None:
    """Those who are left do one more step, also if they are too few, and save behind it."""
    run = waiting()
    assert run.later(59) == []
    assert run.later(1) == [Form((1,), world(2, 1, step=5))]
    reason = "there were fewer than 2 workers for 60 s"
    assert run.hear(Formed(1, 2)) == [Go((1,), 2), Stop((1,), 2, False, reason)]
    assert run.hear(Begun(1, 2, 5)) == [StopAfter((1,), 2, 6, saves=True)]
    assert run.stop({1: 6}) == [End((1,), exits.PEER_LOST, reason)]
    assert run.later(LIMITS.end) == [KillMember(member(1), "did not end in time")]
    assert run.state.phase is Phase.ENDED


def test_waiting_ends_where_nobody_comes_to_the_last_step() -> None:
    run = waiting()
    run.later(60)
    run.hear(Formed(1, 2), Begun(1, 2, 5))
    assert run.later(LIMITS.save - 1) == []
    (end,) = run.later(1)
    assert isinstance(end, End)
    assert end.reason == "there were fewer than 2 workers for 60 s; not all came to the step behind which they save"


def test_waiting_ends_where_nobody_holds_the_state() -> None:
    run = waiting()
    assert run.hear(lost(1)) == []
    assert (run.state.phase, run.state.code) == (Phase.ENDED, exits.PEER_LOST)


def test_waiting_says_who_is_lost() -> None:
    run = Run(3, least=3).start()
    run.hear(lost(2))
    run.stop({1: 5, 3: 5})
    assert run.hear(lost(3)) == []
    assert run.state.phase is Phase.WAITING
    assert run.said[-1] == "worker 2 (host a, pid 103) was ended by SIGKILL, last seen after step 5."


def test_a_world_whose_members_are_all_in_the_next_one_is_not_cut() -> None:
    """They end what they do beside the steps, an evaluation say."""
    run = Run(2, most=3).start().join(3)
    run.later(LIMITS.settle)
    run.hear(Begun(1, 1, 7), Begun(2, 1, 7))
    assert run.stop({1: 7, 2: 7}) == [Form((1, 2, 3), world(2, 1, 2, 3, step=7))]


def test_several_that_leave_are_one_change() -> None:
    run = Run(3).start()
    run.hear(Leaving(1, 30.0))
    run.hear(Leaving(2, 30.0), *(Begun(number, 1, 5) for number in (1, 2, 3)))
    run.stop({1: 5, 2: 5})
    assert run.stop({3: 5}) == [
        End((1, 2), exits.PREEMPTED, "it left on purpose, the others go on"),
        given_up((3,), 1, LEAVES),
        Form((3,), world(2, 3, step=5)),
    ]


def test_waiting_counts_from_the_first_time_that_too_few_were_left() -> None:
    run = waiting()
    run.later(40)
    run.hear(Joined(member(7)), lost(7))
    assert run.state.phase is Phase.WAITING
    assert run.later(19) == []
    assert run.later(1) == [Form((1,), world(3, 1, step=5))]


def test_waiting_saves_where_the_last_one_leaves() -> None:
    run = waiting()
    reason = "all who hold the state leave: worker 0 (host a, pid 101)"
    assert run.hear(Leaving(1, 30.0)) == [Form((1,), world(2, 1, step=5))]
    assert run.hear(Formed(1, 2)) == [Go((1,), 2), Stop((1,), 2, False, reason)]
    assert run.hear(Begun(1, 2, 5)) == [StopAfter((1,), 2, 6, saves=True)]
    assert run.stop({1: 6}) == [End((1,), exits.PREEMPTED, reason)]


def test_waiting_counts_a_state_that_was_taken_before_the_stop() -> None:
    """A member tells that it has formed a world while another of it has died."""
    run = Run(3, least=2).start()
    run.hear(lost(1))
    run.stop({2: 8, 3: 7})
    run.hear(lost(2))
    assert run.state.phase is Phase.WAITING
    run.hear(Formed(3, 2))
    assert run.hear(Joined(member(7))) == [Form((7, 3), world(3, 7, 3, donor=1, step=8))]


# Faults that repeat ----------------------------------------------------------------------------------


def test_a_fault_that_repeats_without_a_completed_step_ends_the_run() -> None:
    run = Run(4).start()
    run.hear(lost(2))
    run.stop({1: 6, 3: 6, 4: 6})
    run.form()
    run.hear(lost(3))
    assert run.stop({1: 6, 4: 6}) == [Form((1, 4), world(3, 1, 4, step=6))]
    run.form()
    run.hear(lost(4))
    (end,) = run.stop({1: 6})
    assert isinstance(end, End)
    assert (end.to, end.code) == ((1,), exits.FAILED)
    assert end.reason.startswith("step 7 has failed 3 times, and no step was completed in between: worker 1 (host a")
    assert "lack of memory" in end.reason


def test_faults_with_a_completed_step_in_between_do_not() -> None:
    run = Run(4).start()
    run.hear(lost(2))
    run.stop({1: 6, 3: 6, 4: 6})
    run.form()
    run.hear(lost(3))
    run.stop({1: 7, 4: 7})
    run.form()
    run.hear(lost(4))
    assert run.stop({1: 7}) == [Form((1,), world(4, 1, step=7))]


def test_a_fault_counts_across_a_planned_change() -> None:
    run = Run(4).start()
    run.hear(lost(2))
    run.stop({1: 6, 3: 6, 4: 6})
    run.form()
    run.hear(lost(3))
    run.stop({1: 6, 4: 6})
    run.form()
    run.join(5)
    run.later(1)
    run.hear(Begun(1, 3, 6), Begun(4, 3, 6))
    run.stop({1: 6, 4: 6})
    run.form()
    run.hear(lost(5))
    (end,) = run.stop({1: 6, 4: 6})
    assert isinstance(end, End)
    assert end.code == exits.FAILED


def test_deaths_in_one_change_count_once() -> None:
    """Two workers of a machine die one behind the other, the second while the world forms."""
    run = Run(3).start()
    run.hear(lost(2))
    run.stop({1: 6, 3: 6})
    causes = dead(1, 2, 0), dead(1, 3, 6)
    assert run.hear(lost(3)) == [given_up((1,), 2, *causes), Form((1,), world(3, 1, step=6))]


def test_one_that_leaves_is_no_fault() -> None:
    run = Run(3).start()
    run.hear(lost(2))
    run.stop({1: 6, 3: 6})
    run.form()
    run.hear(Leaving(3, 30.0), Begun(1, 2, 6), Begun(3, 2, 6))
    run.stop({1: 6})
    assert run.stop({3: 6})[-1] == Form((1,), world(3, 1, step=6))


# The end ---------------------------------------------------------------------------------------------


def test_the_run_ends_when_all_have_finished() -> None:
    run = Run(2).start(9)
    assert run.hear(Finished(1, 1, 9)) == []
    assert run.hear(Finished(2, 1, 9)) == [End((9, 1, 2), 0, "training has come to its end")]
    assert run.hear(lost(9), lost(1)) == []
    assert run.state.phase is Phase.ENDING
    run.hear(lost(2))
    assert (run.state.phase, run.state.code) == (Phase.ENDED, 0)


def test_one_that_has_finished_may_go() -> None:
    run = Run(2).start()
    run.hear(Finished(1, 1, 9))
    assert run.hear(lost(1)) == []
    assert run.hear(Finished(2, 1, 9)) == [End((2,), 0, "training has come to its end")]


def test_whoever_goes_as_it_was_told_is_not_killed() -> None:
    """Its connection closes before its last lines have run."""
    run = Run(2).start(9)
    run.hear(Finished(1, 1, 9))
    assert run.hear(Lost(1, "ended without a word (killed, or crashed)")) == []
    run.hear(Finished(2, 1, 9))
    assert run.hear(Lost(9, "ended without a word"), Lost(2, "ended without a word")) == []
    assert (run.state.phase, run.state.code) == (Phase.ENDED, 0)


def test_no_change_begins_once_one_has_finished() -> None:
    run = Run(2, most=3).start()
    run.hear(Finished(1, 1, 9), Joined(member(3)))
    assert run.later(10) == []


@pytest.mark.parametrize(("dies", "code"), [(2, 0), (1, exits.PEER_LOST)])
def test_a_death_after_others_have_finished(dies: int, code: int) -> None:
    """The run ends well only where the program of the first worker, which writes, has come to its end."""
    run = Run(2).start()
    run.hear(Finished(3 - dies, 1, 9))
    (end,) = run.hear(lost(dies))
    assert isinstance(end, End)
    assert (end.to, end.code) == ((3 - dies,), code)


def test_others_have_a_limit_to_finish_after_such_a_death() -> None:
    run = Run(3).start()
    run.hear(Finished(1, 1, 9), lost(2))
    assert run.state.phase is Phase.RUNNING
    assert run.later(LIMITS.finish - 1) == []
    assert run.later(1) == [
        KillMember(member(3), "did not end within 60 s"),
        End((1,), 0, "training has come to its end"),
    ]


def test_whoever_does_not_end_is_killed() -> None:
    run = Run(1).start()
    run.hear(Finished(1, 1, 9))
    assert run.later(LIMITS.end - 1) == []
    assert run.later(1) == [KillMember(member(1), "did not end in time")]
    assert (run.state.phase, run.state.code) == (Phase.ENDED, 0)


@pytest.mark.parametrize("finish", [lambda run: run, lambda run: run.hear(lost(1))])
def test_whoever_comes_too_late_is_told_the_end(finish: Callable[[Run], object]) -> None:
    run = Run(1).start()
    run.hear(Finished(1, 1, 9))
    finish(run)
    assert run.hear(Joined(member(2))) == [End((2,), 0, "training has come to its end")]


# Nobody comes in any more ------------------------------------------------------------------------------

OVER = "no other process can take part any more"


def test_once_it_is_closed_those_who_wait_are_let_go() -> None:
    run = Run(2).start(9)
    assert run.hear(Closed(2)) == [End((9,), 0, OVER)]
    assert run.hear(Closed(1)) == []
    assert run.hear(Joined(member(3))) == [End((3,), 0, OVER)]
    assert sorted(run.state.places) == [1, 2]


def test_closing_takes_a_new_member_out_of_a_world_that_forms() -> None:
    run = Run(2, most=3).start().join(3)
    run.later(LIMITS.settle)
    run.hear(Begun(1, 1, 7), Begun(2, 1, 7))
    assert run.stop({1: 7, 2: 7}) == [Form((1, 2, 3), world(2, 1, 2, 3, step=7))]
    stop = given_up((1, 2), 2, "1 more can take part")
    assert run.hear(Closed(1)) == [End((3,), 0, OVER), stop, Form((1, 2), world(3, 1, 2, step=7))]


def test_once_it_is_closed_there_is_no_least_number() -> None:
    run = Run(2, least=2).start()
    run.hear(Closed(1), lost(2))
    assert run.stop({1: 9}) == [Form((1,), world(2, 1, step=9))]


def test_closing_ends_the_wait_for_others() -> None:
    run = Run(2, least=2).start()
    run.hear(lost(2))
    run.stop({1: 9})
    assert run.state.phase is Phase.WAITING
    assert run.hear(Closed(1)) == [Form((1,), world(2, 1, step=9))]


def test_once_it_is_closed_a_world_has_time_to_form_and_who_has_finished_is_in_it() -> None:
    run = Run(3).start()
    run.hear(Closed(1), lost(3))
    run.stop({1: 9, 2: 9})
    assert run.later(2 * LIMITS.form) == []
    assert run.hear(Finished(2, 2, 9)) == []
    assert run.hear(Finished(1, 2, 9)) == [Go((1, 2), 2), End((1, 2), 0, "training has come to its end")]


def test_a_death_in_a_world_that_forms_when_one_has_finished_ends_the_run() -> None:
    run = Run(3).start()
    run.hear(Closed(1), lost(3))
    run.stop({1: 9, 2: 9})
    run.hear(Finished(1, 2, 9))
    (end,) = run.hear(lost(2))
    assert isinstance(end, End)
    assert (end.to, end.code) == ((1,), 0)


def test_nothing_else_changes_the_end() -> None:
    run = Run(2).start()
    run.hear(Failed(1, "ValueError"))
    events = [Leaving(2, 1.0), Failed(2, "again"), Stopped(2, 1, 5), Finished(2, 1, 5), Begun(2, 1, 5), Formed(2, 1)]
    assert run.hear(*events) == []
    assert (run.state.phase, run.state.code) == (Phase.ENDING, exits.FAILED)


@pytest.mark.parametrize(
    "event", [Beat(5, 1), Begun(5, 1, 1), Stopped(5, 1, 1), Formed(5, 1), Finished(5, 1, 1), Leaving(5, 1.0), lost(5)]
)
def test_what_comes_from_one_that_is_gone_is_ignored(event: Event) -> None:
    run = Run(2).start()
    before = run.state
    assert run.hear(event) == []
    assert run.state == before
