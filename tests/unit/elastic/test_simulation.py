"""Simulated runs of elastic training with faults at every point: none hangs, none does a completed step again."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.elastic.simulated import SimulatedMember, Simulation, ended_for_a_reason

from stratagem.core import exits
from stratagem.elastic.limits import Limits
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.state import Rules

LIMITS = Limits(start=20, silent=1, stop=5, planned=10, form=10, settle=0.3, finish=10, end=5, save=10)


def rules(wanted: int, least: int = 1, most: int | None = None, below: float = 10.0) -> Rules:
    return Rules(wanted, ElasticOptions(least, most, below_min_seconds=below), LIMITS)


def check_end(simulation: Simulation, code: int) -> None:
    """What holds for every run that is over."""
    if code == 0:
        first = simulation.members[simulation.worlds[-1].numbers[0]]
        assert first.gate.has_finished
        assert first.gate.completed == simulation.steps
    else:
        assert ended_for_a_reason(simulation), (code, simulation.state.reason)


def test_a_run_without_faults() -> None:
    simulation = Simulation(rules(3), spares=1)
    assert simulation.run() == 0
    assert [world.number for world in simulation.worlds] == [1]
    assert simulation.lines == [
        "World 1: 3 workers from step 1.",
        "The run ends with exit code 0: training has come to its end.",
    ]


def disturb(simulation: Simulation, choices: random.Random, process: SimulatedMember) -> None:
    """Do something to a member."""
    kind = choices.choice(["kill", "kill", "cut off", "freeze", "freeze for long", "leave"])
    if kind == "kill":
        simulation.kill(process)
    elif kind == "cut off":
        simulation.cut_off(process)
    elif kind == "leave":
        simulation.leave(process, choices.choice([0.01, 0.3, 5.0]))
    else:
        simulation.freeze(process, 0.5 if kind == "freeze" else 30.0)


def random_run(seed: int) -> Simulation:
    """Run with random numbers of members, and faults at random moments."""
    choices = random.Random(seed)
    wanted = choices.randint(1, 6)
    least = choices.randint(1, wanted)
    most = choices.choice([None, wanted, wanted + 2])
    simulation = Simulation(rules(wanted, least, most), seed=seed, spares=choices.randint(0, 2), hosts=3)
    for _ in range(choices.randint(0, 5)):
        moment = choices.choice([choices.uniform(0, 1), choices.uniform(0, 8)])

        def fault() -> None:
            living = [process for process in simulation.members.values() if process.lives]
            if living:
                disturb(simulation, choices, choices.choice(living))

        simulation.at(moment, fault)
    for _ in range(choices.randint(0, 3)):
        is_spare = choices.random() < 0.3
        simulation.at(choices.uniform(0, 8), lambda is_spare=is_spare: simulation.join(is_spare))
    check_end(simulation, simulation.run())
    return simulation


@pytest.mark.parametrize("seed", range(40))
def test_all_leave_behind_one_step_and_save(seed: int) -> None:
    """Also if one of them dies meanwhile."""
    choices = random.Random(seed)
    simulation = Simulation(rules(3), steps=100_000, seed=seed)

    def leave() -> None:
        for process in simulation.members.values():
            simulation.at(choices.choice([0.0, choices.uniform(0.0, 0.5)]), lambda p=process: simulation.leave(p, 60.0))
        if seed % 4 == 0:
            simulation.at(choices.uniform(0.0, 2.0), lambda: simulation.kill(simulation.members[2]))

    simulation.at(3.0, leave)
    assert simulation.run() == exits.PREEMPTED
    assert "not all came" not in simulation.state.reason
    last = [simulation.members[number] for number in simulation.worlds[-1].numbers]
    step = max(process.own_step for process in last)
    assert simulation.saved.count(step) == sum(process.own_step == step for process in last)
    assert step == max(process.own_step for process in simulation.members.values())


@pytest.mark.parametrize("block", range(6))
def test_random_runs(block: int) -> None:
    runs = [random_run(seed) for seed in range(50 * block, 50 * (block + 1))]
    assert sum(run.state.code == 0 for run in runs) >= 20
    assert sum(len(run.worlds) for run in runs) >= 80


@pytest.mark.thorough
@pytest.mark.parametrize("block", range(20))
def test_many_random_runs(block: int) -> None:
    for seed in range(10_000 + 250 * block, 10_000 + 250 * (block + 1)):
        random_run(seed)


def scenario(seed: int = 0) -> Simulation:
    """A death, a joiner, and one that leaves, in a run of three workers and a spare."""
    simulation = Simulation(rules(3, most=4), steps=36, seed=seed, spares=1)
    simulation.at(0.9, lambda: simulation.kill(simulation.members[2]))
    simulation.at(1.9, simulation.join)
    simulation.at(3.4, lambda: simulation.leave(simulation.members[3], 5.0))
    return simulation


FAULTS: dict[str, Callable[[Simulation, SimulatedMember], None]] = {
    "kill": Simulation.kill,
    "cut off": Simulation.cut_off,
    "freeze": lambda simulation, process: simulation.freeze(process, 30.0),
    "leave": lambda simulation, process: simulation.leave(process, 0.5),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_point(fault: str) -> None:
    """Before each event of the scenario, of one of its members in turn."""
    whole = scenario()
    assert whole.run() == 0
    assert len(whole.worlds) >= 4
    for point in range(0, whole.num_events, 6 if fault == "kill" else 11):
        simulation = scenario()

        def strike(simulation: Simulation = simulation, point: int = point) -> None:
            living = [process for process in simulation.members.values() if process.lives]
            if living:
                FAULTS[fault](simulation, living[point % len(living)])

        simulation.before_event[point] = strike
        check_end(simulation, simulation.run())


@pytest.mark.thorough
@pytest.mark.parametrize("index", range(4))
def test_a_death_at_each_point(index: int) -> None:
    """Before each event, of one and the same member."""
    whole = scenario(2)
    assert whole.run() == 0
    for point in range(whole.num_events):
        simulation = scenario(2)

        def strike(simulation: Simulation = simulation) -> None:
            living = [process for process in simulation.members.values() if process.lives]
            if living:
                simulation.kill(living[index % len(living)])

        simulation.before_event[point] = strike
        check_end(simulation, simulation.run())


def test_two_deaths_at_every_point() -> None:
    whole = scenario(1)
    assert whole.run() == 0
    choices = random.Random(5)
    for _ in range(150):
        simulation = scenario(1)
        first = choices.randrange(whole.num_events)
        for point in (first, first + choices.randint(1, 40)):

            def strike(simulation: Simulation = simulation) -> None:
                living = [process for process in simulation.members.values() if process.lives]
                if living:
                    simulation.kill(choices.choice(living))

            simulation.before_event[point] = strike
        check_end(simulation, simulation.run())


def test_all_die() -> None:
    simulation = Simulation(rules(3), spares=1)

    def kill_the_world() -> None:
        for number in simulation.worlds[-1].numbers:
            simulation.kill(simulation.members[number])

    simulation.at(1.0, kill_the_world)
    assert simulation.run() == 43
    assert "nobody is left who holds the state" in simulation.state.reason


@pytest.mark.parametrize("seed", range(20))
def test_an_exception_ends_the_run_at_any_moment(seed: int) -> None:
    simulation = scenario(seed)
    choices = random.Random(seed)

    def fail() -> None:
        world = simulation.worlds[-1]
        living = [simulation.members[number] for number in world.numbers if simulation.members[number].lives]
        simulation.fail(choices.choice(living), "ValueError: shapes")

    simulation.at(choices.uniform(0.6, 3.0), fail)
    code = simulation.run()
    # One whose last message is lost because it dies in the same moment is a death.
    assert code == 1 or "ValueError" not in simulation.state.reason
    assert sum("failed: ValueError: shapes" in line for line in simulation.lines) == (code == 1)


@pytest.mark.parametrize("seed", range(3))
def test_256_members(seed: int) -> None:
    """Eight deaths, of which some come while a change is under way, and four spares."""
    limits = Limits(start=20, silent=5, stop=5, form=10, settle=0.3, end=5)
    simulation = Simulation(Rules(252, ElasticOptions(), limits), 12, seed, spares=4, hosts=16, beat=1.0)
    choices = random.Random(seed)
    for _ in range(8):
        moment = choices.uniform(0.5, 3.0)
        simulation.at(moment, lambda: simulation.kill(simulation.members[choices.randint(1, 200)]))
    assert simulation.run() == 0
    assert len(simulation.worlds) >= 2
    assert 244 <= len(simulation.worlds[-1].members) <= 252
