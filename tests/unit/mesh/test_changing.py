"""The state that a worker gives where its world changes once more before it has gone on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stratagem.mesh import changing
from stratagem.mesh.changing import ChangingWorld, Layout
from stratagem.mesh.given import Given, ResizedError

OWN, TAKEN = Given({"batch": 6}, []), Given({"batch": 7}, [])


@pytest.mark.parametrize(("taken", "given"), [(None, OWN), (TAKEN, TAKEN)], ids=["its own", "taken"])
def test_one_that_was_a_step_behind_begins_again_from_the_state_that_it_took(
    monkeypatch: pytest.MonkeyPatch, taken: Given | None, given: Given
) -> None:
    """Its values are those behind the step then; its own place in the data is still before it."""
    world: Any = ChangingWorld.__new__(ChangingWorld)
    world.made_for = Layout(3, 1)
    world.peers = SimpleNamespace(own_index=1, meet_with=lambda ranks: None)
    world._membership = SimpleNamespace(is_busy=False)
    world._taken = taken
    monkeypatch.setattr(ChangingWorld, "layout", Layout(2, 1))
    monkeypatch.setattr(world, "_exchanged_state", lambda state: None)  # all hold the same by now
    state: Any = SimpleNamespace(give=lambda: OWN)
    with pytest.raises(ResizedError) as caught:
        world._exchanged_state_that_fits(state)
    assert caught.value.given is given
    assert world.is_catching_up


@pytest.mark.parametrize("has_taken", [False, True])
def test_the_donor_gives_what_it_took(monkeypatch: pytest.MonkeyPatch, has_taken: bool) -> None:
    world: Any = ChangingWorld.__new__(ChangingWorld)
    told: list[Any] = []

    def from_all(name: str, value: Any) -> list[Any]:
        told.append(value)
        return [[3, 0], [4, 0]] if name == "steps" else [[None, []], value]

    world.peers = SimpleNamespace(own_index=1, from_all=from_all)
    world.memory, world._world = None, SimpleNamespace(number=5)
    world._steps, world.num_evaluated = 4, 0
    world._taken = TAKEN if has_taken else None
    monkeypatch.setattr(changing, "send", lambda peers, memory, name, rank, arrays: list(arrays))
    state: Any = SimpleNamespace(give=lambda: OWN)
    assert world._given(state) is None
    assert told[1] == [(TAKEN if has_taken else OWN).said, []]
