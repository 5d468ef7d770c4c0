"""`fit` and evaluations that begin again, where the number of workers has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stratagem
from stratagem.core.errors import UnsupportedError
from stratagem.elastic.world import Bounds
from stratagem.fit.reentry import check_input, evaluated, in_changing_world
from stratagem.mesh.given import Given, ResizedError


class World:
    """A world whose number of workers follows a list."""

    def __init__(self, sizes: list[int], given: Given | None = None) -> None:
        self.sizes, self.given = sizes, given
        self.is_catching_up = given is not None
        self.layout = sizes[0]
        self.made_for: Any = sizes[0]
        self.own_state = SimpleNamespace(num_evaluated=0)
        self.membership: Any = SimpleNamespace()
        self.has_closed = False

    def catch_up(self) -> Given | None:
        return self.given

    def has_trained(self) -> None:
        self.has_closed = True


class Strategy:
    """A strategy of such a world."""

    def __init__(self, world: World) -> None:
        self.mesh: Any = SimpleNamespace(world=world)

    def follow_workers(self) -> None:
        self.mesh.world.layout = self.mesh.world.sizes.pop(0)


FIRST, SECOND = Given({"fit": 1}, []), Given({"fit": 2}, [])


def test_a_fit_begins_again_from_what_is_given_and_knows_what_was_before() -> None:
    world = World([3, 2, 1])
    outcomes = [ResizedError(FIRST), ResizedError(SECOND), "history"]
    made: list[Any] = []

    def place(call: int, given: Given | None, before: Any) -> Any:
        made.append((call, given, before))
        return f"place {len(made)}"

    def fit(place: Any) -> str:
        assert world.made_for == world.layout
        outcome = outcomes.pop(0)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    strategy: Any = Strategy(world)
    assert in_changing_world(strategy, place, fit) == "history"
    call = made[0][0]
    assert made == [(call, None, None), (call, FIRST, "place 1"), (call, SECOND, "place 2")]
    assert world.has_closed
    world.sizes = [1]
    in_changing_world(strategy, place, lambda place: None)
    assert made[-1] == (call + 1, None, None)


def test_a_new_worker_begins_where_the_others_are() -> None:
    strategy: Any = Strategy(World([2], FIRST))
    made: list[Any] = []
    in_changing_world(strategy, lambda call, given, before: made.append(given), lambda place: None)
    assert made == [FIRST]


def test_a_fit_that_fails_does_not_say_that_it_has_trained() -> None:
    world = World([2])
    strategy: Any = Strategy(world)

    def fit(place: Any) -> None:
        raise ValueError("of the program")

    with pytest.raises(ValueError, match="of the program"):
        in_changing_world(strategy, lambda call, given, before: None, fit)  # pyright: ignore[reportArgumentType]
    assert not world.has_closed


def test_an_evaluation_begins_again_with_those_who_are_left() -> None:
    world = World([1])
    strategy: Any = Strategy(world)
    begun = []

    def evaluate(has_begun: bool) -> float:
        begun.append(has_begun)
        if not has_begun:
            raise ResizedError
        return 0.5

    assert evaluated(strategy, [], evaluate) == 0.5
    assert begun == [False, True]
    assert (world.made_for, world.own_state.num_evaluated) == (None, 1)  # a `fit` round it begins again too


@pytest.mark.parametrize(
    ("least", "begins_again", "refused"), [(2, False, False), (1, False, True), (2, True, True)], ids=str
)
def test_a_generator_is_refused_where_it_would_be_read_a_second_time(
    least: int, begins_again: bool, refused: bool
) -> None:
    strategy = stratagem.OneDeviceStrategy("cpu:0")
    x = np.zeros((4, 1), "float32")
    given: dict[str, Any] = {
        "arrays": {"x": x, "y": x},
        "dataset": {"x": stratagem.data.Dataset.from_tensor_slices((x, x)).batch(2)},
        "generator": {"x": (batch for batch in [(x, x)])},
    }
    mesh = SimpleNamespace(world=SimpleNamespace(membership=SimpleNamespace(bounds=Bounds(least, 2, 2))))
    session: Any = SimpleNamespace(strategy=SimpleNamespace(mesh=mesh), begins_again=begins_again, method="evaluate")
    adapters = {kind: strategy.make_adapter(arguments, in_order=False) for kind, arguments in given.items()}
    for kind, adapter in adapters.items():
        if kind == "generator" and refused:
            with pytest.raises(UnsupportedError, match="`evaluate` was given a generator"):
                check_input(session, adapter)
        else:
            check_input(session, adapter)
    mesh.world = None
    check_input(session, adapters["generator"])
