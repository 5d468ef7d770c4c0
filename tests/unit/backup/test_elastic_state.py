"""A loop that starts again from its last commit, in a world that follows a list."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stratagem
from stratagem import keras
from stratagem.core.errors import InputError, UnsupportedError, UsageError
from stratagem.elastic.world import WorldChangedError
from stratagem.mesh.given import Given, ResizedError


class World:
    """A world of which a list says what happens where a step is begun: nothing, or an error, or another world."""

    def __init__(self, events: list[Any], given: Given | None = None) -> None:
        self.events, self.given = events, given
        self.is_catching_up = given is not None
        self.layout: Any = 2
        self.made_for: Any = None
        self.loop: Any = None
        self.is_forming = False
        self.told: list[str] = []
        self.membership = SimpleNamespace(ends_here=False)

    def catch_up(self) -> Given | None:
        return self.given

    def enter(self, state: Any) -> None:
        self.is_catching_up = self.is_forming = False
        self.told.append("enter")

    def begin_step(self, state: Any) -> bool:
        event = self.events.pop(0) if self.events else None
        if isinstance(event, Given):
            state.take(event)
            return False
        if event is not None:
            raise event
        return True

    def end_step(self, shards: Any) -> None:
        self.told.append("step")

    def is_over(self, error: BaseException) -> bool:
        return isinstance(error, WorldChangedError)

    def has_trained(self) -> None:
        self.told.append("trained")


class Strategy:
    """A strategy of such a world, with the mesh of one device for the values of variables."""

    def __init__(self, world: World | None) -> None:
        mesh = stratagem.OneDeviceStrategy("cpu:0").mesh
        self.mesh: Any = SimpleNamespace(
            world=world, keep=mesh.keep, keep_given=mesh.keep_given, is_replicated=mesh.is_replicated, size=1
        )
        self.num_followed = 0

    def follow_workers(self) -> None:
        self.num_followed += 1


def state_in(world: World | None) -> Any:
    strategy: Any = Strategy(world)
    total = keras.Variable(np.zeros(2, "float32"), trainable=False)
    return stratagem.ElasticState(strategy, total=total, step=0, seen=[])


def loop_of(world: World) -> Any:
    """Return a loop of five steps, each of two programs; the total is 0 + 1 + 2 + 3 + 4 where none counts twice."""

    def loop(state: Any) -> str:
        while state.step < 5:
            state.total.assign(np.asarray(state.total) + state.step)
            state.seen.append(state.step)
            world.loop.begin_program()
            world.loop.begin_program()
            state.step += 1
            state.commit()
        return "done"

    return loop


def check(state: Any) -> None:
    assert (state.step, state.seen) == (5, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(np.asarray(state.total), [10, 10])


def test_a_step_is_one_for_the_world_however_many_programs_it_has() -> None:
    world = World([])
    state = state_in(world)
    assert state.run(loop_of(world)) == "done"
    check(state)
    assert world.told == ["enter", *["step"] * 5, "trained"]
    assert world.loop is None


def test_a_step_that_was_cut_is_done_again_from_the_last_commit() -> None:
    world = World([None, None, WorldChangedError(1, "a worker is gone"), None, WorldChangedError(2, "and another")])
    state = state_in(world)
    assert state.run(loop_of(world)) == "done"
    check(state)
    assert world.told == ["enter", "step", "step", "enter", "step", "enter", "step", "step", "trained"]


@pytest.mark.parametrize("fails", [True, False], ids=["in a program", "in a commit"])
def test_a_step_in_which_the_workers_met_anew_does_not_count(fails: bool) -> None:
    """A meeting between two programs takes a worker to the next world, where programs cannot run yet."""
    world = World([])
    state = state_in(world)

    def loop(own: Any) -> None:
        if own.step == 2 and world.told.count("enter") == 1:
            own.seen.append("lost")
            world.loop.begin_program()
            world.is_forming = True
            if fails:
                raise RuntimeError("ABORTED: the exchange of a step was cut")
            own.commit()
        loop_of(world)(own)

    def twice(own: Any) -> None:
        while own.step < 2:
            own.total.assign(np.asarray(own.total) + own.step)
            own.seen.append(own.step)
            world.loop.begin_program()
            own.step += 1
            own.commit()
        loop(own)

    state.run(twice)
    check(state)
    assert world.told == ["enter", "step", "step", "enter", *["step"] * 3, "trained"]


def test_state_of_others_replaces_that_of_a_worker_that_was_behind() -> None:
    donor = state_in(World([]))
    donor.run(loop_of(donor._strategy.mesh.world))
    given = Given({**donor.held.as_given().said, "loop": None}, donor.held.as_given().arrays)
    world = World([])
    state = state_in(world)

    def loop(own: Any) -> None:
        if not own.seen:
            world.events = [Given({**given.said, "loop": world.loop._number}, given.arrays)]
        loop_of(world)(own)

    state.run(loop)
    check(state)
    assert world.told == ["enter", "enter", "trained"]


def test_a_new_worker_begins_where_the_others_are() -> None:
    donor = state_in(World([]))
    donor.run(loop_of(donor._strategy.mesh.world))
    said, arrays = donor.held.as_given()
    world = World([], Given({**said, "loop": 1_000_000}, arrays))
    with pytest.raises(UnsupportedError, match=r"came to loop \d+ of its program, in ElasticState.run; the others are"):
        state_in(world).run(loop_of(world))
    world = World([], Given({"fit": 1}, []))
    with pytest.raises(UnsupportedError, match="the others are in `fit`"):
        state_in(world).run(loop_of(world))


def test_another_number_of_workers_begins_anew_with_the_state_of_one() -> None:
    world = World([None, None])
    state = state_in(world)

    steps: list[int] = []

    def loop(own: Any) -> None:
        while own.step < 5:
            own.total.assign(np.asarray(own.total) + own.step)
            own.seen.append(own.step)
            if own.step == 2 and world.layout == 2:
                world.layout = 3
                said, arrays = own.held.as_given()
                world.events = [ResizedError(Given({**said, "loop": world.loop._number}, arrays))]
            world.loop.begin_program()
            steps.append(world.made_for)
            own.step += 1
            own.commit()

    state.run(loop)
    check(state)
    assert steps == [2, 2, 3, 3, 3]
    assert state._strategy.num_followed == 2


def test_a_mistake_of_the_program_is_raised() -> None:
    world = World([ValueError("of the program")])
    state = state_in(world)
    with pytest.raises(ValueError, match="of the program"):
        state.run(loop_of(world))
    assert world.told == ["enter"]
    assert world.loop is None


def test_attributes_that_came_after_the_commit_are_gone() -> None:
    world = World([None, WorldChangedError(1, "a worker is gone")])
    state = state_in(world)
    found: list[bool] = []

    def loop(own: Any) -> None:
        found.append(hasattr(own, "number") or hasattr(own, "variable"))
        for _ in range(2 - own.step):
            world.loop.begin_program()
            own.step += 1
            own.commit()
            own.number, own.variable = 3, keras.Variable(0.0)

    state.run(loop)
    assert found == [False, False]
    assert (state.step, state.number) == (2, 3)


def test_without_workers_that_change_a_loop_runs_once() -> None:
    state = state_in(None)
    calls: list[int] = []

    def loop(own: Any) -> int:
        calls.append(own.step)
        own.step += 1
        own.commit()
        return own.step

    assert state.run(loop) == 1
    assert calls == [0]
    with pytest.raises(AssertionError, match="a loop begins with one"):
        _ = state.held


def test_a_loop_saves_behind_the_last_step_of_a_run_that_ends() -> None:
    world = World([])
    state = state_in(world)
    saved: list[tuple[int, float]] = []

    def loop(own: Any) -> None:
        for own.step in range(1, 5):
            own.total.assign(own.total + 1.0)
            world.membership.ends_here = own.step == 3
            own.commit()

    state.run(loop, save=lambda: saved.append((state.held.plain["step"], float(state.total[0]))))
    assert saved == [(3, 3.0)]
    world.membership.ends_here = True
    state.run(lambda own: own.commit())  # that of a loop before saves no more
    assert saved == [(3, 3.0)]


def test_a_checkpoint_holds_all_of_the_state(tmp_path: Path) -> None:
    state, other = state_in(None), state_in(None)
    state.total.assign([1.0, 2.0])
    state.step, state.seen = 7, [1, (2, "three")]
    state.table = np.arange(6, dtype="int16").reshape(2, 3)
    state.halves = jnp.asarray([0.5, 1.5], "bfloat16")
    path = stratagem.train.Checkpoint(state=state).write(tmp_path / "state")
    stratagem.train.Checkpoint(state=other).read(path).assert_consumed()
    np.testing.assert_array_equal(other.total, [1.0, 2.0])
    assert (other.step, other.seen) == (7, [1, (2, "three")])
    np.testing.assert_array_equal(other.table, [[0, 1, 2], [3, 4, 5]])
    assert (other.table.dtype, other.halves.dtype) == ("int16", "bfloat16")
    np.testing.assert_array_equal(np.asarray(other.halves, "float32"), [0.5, 1.5])


def test_loops_do_not_stand_in_each_other_or_in_programs() -> None:
    world = World([])
    state = state_in(world)
    with pytest.raises(UsageError, match="called inside the loop of an ElasticState"):
        state.run(lambda own: state_in(world).run(lambda inner: None))

    other = state_in(None)

    @stratagem.function
    def compiled(x: Any) -> Any:
        other.commit()
        return x

    with pytest.raises(UsageError, match=r"ElasticState\.commit was called in a function that is being compiled"):
        compiled(1.0)


@pytest.mark.parametrize("name", ["commit", "run", "_strategy"])
def test_names_of_its_own_are_refused(name: str) -> None:
    strategy: Any = Strategy(None)
    with pytest.raises(InputError, match=rf"an object under the name '{name}'"):
        stratagem.ElasticState(strategy, **{name: 1})


def test_variables_that_are_not_in_the_state_are_named_on_a_worker_that_came_later() -> None:
    other = keras.Variable(1.0, name="other")
    for came_later in (False, True):
        world = World([])
        state = state_in(world)

        def loop(own: Any, world: World = world, came_later: bool = came_later) -> None:
            world.loop.came_later = came_later
            world.loop.check_placed([own.total])
            world.loop.check_placed([own.total, other])

        if came_later:
            with pytest.raises(UnsupportedError, match=r"variables which the ElasticState does not hold: other\."):
                state.run(loop)
        else:
            state.run(loop)
