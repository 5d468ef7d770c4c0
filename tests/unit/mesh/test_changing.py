"""The state that a worker gives where its world changes once more before it has gone on."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stratagem.core.errors import UnsupportedError
from stratagem.elastic.events import Form, Order, Prepare
from stratagem.elastic.world import Bounds, Member, World
from stratagem.mesh import changing
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
    world.is_preparing, world._taking_place = False, threading.RLock()
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


def world_that_prepares(monkeypatch: pytest.MonkeyPatch, others: int, orders: list[Order]) -> Any:
    """Return the world of member 9, which comes when others train already, and hears some orders afterwards."""
    heard: list[Order] = [Prepare((9,), World(3, members(*range(1, others + 1)), donor=0, step=7)), *orders]
    told: list[str] = []
    membership: Any = SimpleNamespace(
        number=9,
        bounds=Bounds(1, others, others),
        is_busy=False,
        next_order=lambda seconds: heard.pop(0),
        prepared=lambda: told.append("prepared"),
    )
    monkeypatch.setattr(changing, "memory_of_one", lambda: SimpleNamespace(world=0, is_cut=False))
    monkeypatch.setattr(ChangingWorld, "_enter", lambda self: told.append(f"entered world {self._world.number}"))
    world: Any = ChangingWorld(membership, 1.0, cast(Any, None))
    world.told = told
    return world


def members(*numbers: int) -> tuple[Member, ...]:
    return tuple(Member(number, "a", number, f"a:{number}") for number in numbers)


@pytest.mark.parametrize("others", [1, 3])
def test_one_that_prepares_meets_nobody_and_stands_at_the_last_place(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    world = world_that_prepares(monkeypatch, others, [])
    assert (world.is_preparing, world.is_catching_up, world.membership.is_busy) == (True, True, True)
    assert world.layout == Layout(others, others - 1)
    assert world.peers.from_all("values", 5) == [5] * others
    world.peers.barrier("a scope")
    assert world.told == []


def test_one_that_prepares_waits_for_its_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Prepare((9,), World(4, members(1, 2), donor=0, step=8))
    world = world_that_prepares(monkeypatch, 3, [again, Form((9, 2, 3), World(5, members(9, 2, 3), donor=1, step=9))])
    world.take_place()
    world.take_place()
    assert world.told == ["prepared", "entered world 5"]
    assert (world.is_preparing, world.layout) == (False, Layout(3, 0))


def test_one_that_prepares_waits_for_its_place_before_a_program_that_it_cannot_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as nobody is lost, the run does not need it: that it cannot take part is no error."""
    world = world_that_prepares(monkeypatch, 3, [Form((9, 2, 3), World(5, members(9, 2, 3), donor=1, step=9))])
    with pytest.raises(UnsupportedError, match="does not belong to the `fit`, or the loop, of the other workers"):
        world.begin_program()
    assert world.told == ["prepared", "entered world 5"]
