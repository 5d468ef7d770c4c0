"""The state that a worker gives where its world changes once more before it has gone on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stratagem.core.errors import UnsupportedError
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.given import Given, ResizedError
from stratagem.mesh.own_state import OwnState
from stratagem.mesh.worker_counts import Layout

STATE: Any = SimpleNamespace(shards=list)

OWN, TAKEN = Given({"batch": 6}, []), Given({"batch": 7}, [])


@pytest.mark.parametrize(("taken", "given"), [(None, OWN), (TAKEN, TAKEN)], ids=["its own", "taken"])
def test_one_that_was_a_step_behind_begins_again_from_the_state_that_it_took(
    monkeypatch: pytest.MonkeyPatch, taken: Given | None, given: Given
) -> None:
    """Its values are those behind the step then; its own place in the data is still before it."""
    world: Any = ChangingWorld.__new__(ChangingWorld)
    world.made_for = Layout(3, 1)
    world.peers = SimpleNamespace(own_index=1, meet_with=lambda ranks: None)
    world.membership = SimpleNamespace(is_busy=False)
    world.own_state = own_state(taken)
    monkeypatch.setattr(ChangingWorld, "layout", Layout(2, 1))
    monkeypatch.setattr(world, "_exchanged_state", lambda state: None)  # all hold the same by now
    state: Any = SimpleNamespace(give=lambda: OWN)
    with pytest.raises(ResizedError) as caught:
        world._exchanged_state_that_fits(state)
    assert caught.value.given is given
    assert world.is_catching_up


def own_state(taken: Given | None) -> OwnState:
    """Return the state of a worker that has done four steps."""
    own = OwnState(keeps_copies=True)
    own.steps, own._taken = 4, taken
    return own


def world_of(may_begin: list[bool]) -> Any:
    """Return a world whose coordinator lets steps begin as a list says, and which notes what it does."""
    world: Any = ChangingWorld.__new__(ChangingWorld)
    told: list[str] = []
    world.told, world.loop, world.is_catching_up = told, None, False
    world._is_due = None
    world.own_state = own_state(TAKEN)
    world.membership = SimpleNamespace(
        may_begin=lambda: may_begin.pop(0), completed=lambda: told.append("completed"), goes=True, number=0
    )
    world._world = SimpleNamespace(number=2, members=[0], rank_of=lambda number: 0)
    world._is_due, world.memory = None, SimpleNamespace(world=2, is_cut=False)

    def change(state: Any) -> None:
        told.append(f"changed with {state}")
        world.memory.is_cut = False

    world._change = change
    world._arrive = lambda state: told.append(f"arrived with {state}")
    return world


def test_a_step_of_a_loop_says_whether_the_world_is_the_same() -> None:
    world = world_of([True, False, False, True])
    assert world.begin_step(STATE)
    world.end_step([])
    assert (world.told, world.own_state.steps, world.own_state._taken) == (["completed"], 5, None)
    assert not world.begin_step(STATE)
    assert world.told[1:] == [f"changed with {STATE}"] * 2


def test_a_new_worker_arrives_before_its_loop_begins() -> None:
    world = world_of([])
    world.enter("state")
    assert world.told == []
    world.is_catching_up = True
    world.enter("state")
    assert world.told == ["arrived with state"]


def test_a_worker_whose_exchange_is_over_waits_for_the_next_world() -> None:
    """It may know of a death before the coordinator does: it would meet others where they do not come to."""
    world = world_of([])
    world.memory.is_cut = True
    world.enter("state")
    assert world.told == ["changed with state"]


def test_an_exchange_that_is_over_is_reported() -> None:
    world = world_of([])
    world.membership.stopped = lambda: world.told.append("stopped")
    world._report_cut()
    assert world.told == []
    world.memory.is_cut = True
    world._report_cut()
    world.membership.goes = False  # the coordinator knows
    world._report_cut()
    assert world.told == ["stopped"]


def test_a_program_outside_a_loop_is_an_error_of_a_new_worker() -> None:
    world = world_of([])
    world.begin_program()
    world.is_catching_up = True
    with pytest.raises(UnsupportedError, match="does not belong to the `fit`, or the loop, of the other workers"):
        world.begin_program()
    begun: list[bool] = []
    world.loop = SimpleNamespace(begin_program=lambda: begun.append(True))
    world.begin_program()
    assert begun == [True]
