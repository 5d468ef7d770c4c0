"""A member's side of the protocol."""

from __future__ import annotations

import pytest

from stratagem.elastic.events import Begun, End, Finished, Form, Formed, Go, Prepare, Stop, StopAfter, Stopped
from stratagem.elastic.gate import Gate
from stratagem.elastic.world import Member, World, WorldChangedError

MEMBERS = (Member(1, "a", 11, "a:1"), Member(2, "a", 12, "a:2"))
ME = (1,)


def training(steps: int = 0) -> Gate:
    """Return the gate of a member that has completed some steps in world 1."""
    gate = Gate(1)
    assert gate.hear(Form(ME, World(1, MEMBERS, 0, 0))) is None
    assert gate.formed(1) == Formed(1, 1)
    assert gate.hear(Go(ME, 1)) is None
    for _ in range(steps):
        assert gate.may_begin() is True
        gate.complete()
    return gate


def test_no_step_before_the_first_world_goes() -> None:
    gate = Gate(1)
    assert gate.may_begin() is False
    gate.hear(Form(ME, World(1, MEMBERS, 0, 0)))
    assert gate.may_begin() is False
    assert not gate.holds_state
    gate.formed(1)
    assert gate.may_begin() is False
    gate.hear(Go(ME, 1))
    assert gate.may_begin() is True
    assert (gate.begun, gate.completed, gate.holds_state) == (1, 0, True)


def test_a_cut_forgets_the_step_that_is_in_flight() -> None:
    gate = training(3)
    assert gate.may_begin() is True
    assert gate.hear(Stop(ME, 1, True, "worker 1 died")) is None
    assert gate.may_begin() is False
    assert gate.reason == "worker 1 died"
    assert gate.stopped() == Stopped(1, 1, 3)
    assert (gate.begun, gate.completed) == (3, 3)


def test_a_planned_stop_waits_for_the_last_step() -> None:
    gate = training(3)
    assert gate.hear(Stop(ME, 1, False, "1 more can take part")) == Begun(1, 1, 3)
    assert gate.may_begin() is None
    assert gate.hear(StopAfter(ME, 1, 5)) is None
    assert [gate.may_begin(), gate.may_begin(), gate.may_begin()] == [True, True, False]
    gate.complete()
    assert gate.stopped() == Stopped(1, 1, 5)


def test_a_run_ends_behind_its_last_step_and_not_before() -> None:
    gate = training(3)
    gate.hear(Stop(ME, 1, False, "all leave"))
    assert not gate.ends_here
    assert gate.hear(StopAfter(ME, 1, 4, saves=True)) is None
    assert not gate.ends_here
    assert gate.may_begin() is True
    assert not gate.ends_here
    gate.complete()
    assert gate.ends_here
    gate.hear(Stop(ME, 1, True, "worker 1 died"))
    assert gate.ends_here  # as for those who hear of the death only when they save
    gate.hear(Form(ME, World(2, MEMBERS[:1], 0, 4)))
    assert not gate.ends_here


def test_a_last_step_that_is_cut_is_none() -> None:
    gate = training(3)
    gate.hear(Stop(ME, 1, False, "all leave"))
    gate.hear(StopAfter(ME, 1, 4, saves=True))
    assert gate.may_begin() is True
    gate.hear(Stop(ME, 1, True, "worker 1 died"))
    gate.stopped()
    assert not gate.ends_here


def test_a_planned_stop_in_a_step_counts_the_step() -> None:
    gate = training(3)
    assert gate.may_begin() is True
    assert gate.hear(Stop(ME, 1, False, "")) == Begun(1, 1, 4)


def test_a_planned_stop_that_becomes_a_cut() -> None:
    gate = training(3)
    assert gate.may_begin() is True
    gate.hear(Stop(ME, 1, False, ""))
    assert gate.hear(StopAfter(ME, 1, 5)) is None
    assert gate.hear(Stop(ME, 1, True, "worker 1 died")) is None
    assert gate.may_begin() is False
    assert gate.stopped() == Stopped(1, 1, 3)


def test_a_stop_between_two_steps_is_answered_for_the_member() -> None:
    """It may be in a callback that takes minutes; nothing of it is in flight."""
    gate = training(3)
    assert gate.hear(Stop(ME, 1, True, "worker 1 died")) == Stopped(1, 1, 3)
    gate = training(3)
    gate.hear(Stop(ME, 1, False, "1 more can take part"))
    assert gate.hear(StopAfter(ME, 1, 3)) == Stopped(1, 1, 3)


def test_a_stop_while_a_world_forms_is_not_answered() -> None:
    gate = Gate(1)
    gate.hear(Form(ME, World(1, MEMBERS, 0, 0)))
    assert gate.hear(Stop(ME, 1, True, "too few are left")) is None


def test_a_world_that_was_overtaken_is_not_formed() -> None:
    gate = training(3)
    gate.hear(Form(ME, World(2, MEMBERS, 0, 3)))
    gate.hear(Form(ME, World(3, MEMBERS, 0, 3)))
    with pytest.raises(WorldChangedError, match=r"World 2 has ended: world 3 takes its place\."):
        gate.formed(2)
    assert gate.formed(3) == Formed(1, 3)


def test_a_planned_stop_that_is_called_off() -> None:
    gate = training(3)
    gate.hear(Stop(ME, 1, False, ""))
    gate.hear(StopAfter(ME, 1, 3))
    assert gate.may_begin() is False
    gate.stopped()
    gate.hear(Go(ME, 1))
    assert gate.may_begin() is True


def test_orders_of_another_world_change_nothing() -> None:
    gate = training(3)
    for order in (Stop(ME, 2, True, ""), Stop(ME, 2, False, ""), StopAfter(ME, 2, 0), Go(ME, 2)):
        assert gate.hear(order) is None
    assert gate.may_begin() is True
    gate.hear(Form(ME, World(2, MEMBERS, 0, 3)))
    gate.hear(Go(ME, 1))
    assert gate.may_begin() is False


def test_one_that_is_behind_has_the_step_of_the_world_once_it_has_formed_it() -> None:
    gate = training(3)
    gate.hear(Stop(ME, 1, True, ""))
    gate.hear(Form(ME, World(2, MEMBERS, 1, 4)))
    assert (gate.completed, gate.holds_state) == (3, True)
    assert gate.formed(2) == Formed(1, 2)
    assert gate.completed == 4


def test_the_end() -> None:
    gate = training(3)
    gate.hear(End(ME, 0, "training has come to its end"))
    assert gate.may_begin() is False
    assert gate.reason == "training has come to its end"


def test_one_that_has_finished_says_so_in_each_world() -> None:
    """Its report may have come when the world had ended; the others of the next one would wait for it for ever."""
    gate = training(3)
    gate.hear(Stop(ME, 1, True, "worker 1 died"))
    assert gate.finished() == Finished(1, 1, 3)
    assert gate.hear(Form(ME, World(2, MEMBERS[:1], 0, 3))) == Finished(1, 2, 3)


def test_an_order_to_prepare_changes_nothing() -> None:
    gate = Gate(3)
    assert gate.hear(Prepare((3,), World(1, MEMBERS, 0, 0))) is None
    assert (gate.world, gate.may_begin()) == (0, False)
