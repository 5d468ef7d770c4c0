from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from stratagem.cluster.stragglers import Reading, Straggler, Stragglers, find_straggler
from stratagem.core.spent import Spent

Cost = Callable[[int, float, random.Random], dict[str, float]]
"""Seconds of a worker's own work in one step, by part; given the worker and the time."""


def _run(cost: Cost, *, workers: int = 3, seconds: float = 40.0, seed: int = 0) -> list[tuple[float, Straggler]]:
    """Simulate workers in step that are read once a second, each at a moment of its own; return who was named when."""
    rng = random.Random(seed)
    stragglers, named = Stragglers(), []
    spent = [dict.fromkeys(Spent._fields, 0.0) for _ in range(workers)]
    offsets = [rng.random() for _ in range(workers)]
    due = list(offsets)
    readings: list[Reading | None] = [None] * workers
    now, steps, looks = 0.0, 0, 1.0
    while now < seconds:
        costs = [cost(worker, now, rng) for worker in range(workers)]
        length = max(sum(each.values()) for each in costs)
        for worker, each in enumerate(costs):
            if due[worker] <= now + length:  # read within the step: its own work comes first
                within = {part: value * rng.random() for part, value in each.items()}
                so_far = {part: total + within.get(part, 0.0) for part, total in spent[worker].items()}
                readings[worker] = Reading(offsets[worker] + now + sum(within.values()), steps, Spent(**so_far))
                due[worker] += 1.0
            for part, value in each.items():
                spent[worker][part] += value
            spent[worker]["waiting"] += length - sum(each.values())
        now, steps = now + length, steps + 1
        if now >= looks:
            looks += 1.0
            if all(reading is not None for reading in readings):
                found = stragglers.look([reading for reading in readings if reading is not None])
                if found is not None:
                    named.append((now, found))
    return named


def _usual(rng: random.Random) -> dict[str, float]:
    computing = 0.02 * rng.uniform(0.9, 1.1) + (0.03 if rng.random() < 0.02 else 0.0)
    return {"input": 0.001, "copying": 0.0005, "computing": computing, "exchanging": 0.002, "between": 0.001}


@pytest.mark.parametrize("part", ["input", "computing", "exchanging", "between"])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_twenty_milliseconds_are_named_with_worker_and_part_within_ten_seconds(part: str, workers: int) -> None:
    def cost(worker: int, now: float, rng: random.Random) -> dict[str, float]:
        own = _usual(rng)
        own[part] += 0.02 if worker == 1 and now > 10.0 else 0.0
        return own

    for seed in range(10):
        named = _run(cost, workers=workers, seed=seed, seconds=30.0)
        assert [(found.task, found.part) for _, found in named] == [(1, part)]
        when, found = named[0]
        assert when < 20.0
        assert found.extra == pytest.approx(0.02, rel=0.35)


def test_a_core_of_half_the_speed_is_slow_in_computing() -> None:
    def cost(worker: int, now: float, rng: random.Random) -> dict[str, float]:
        own = _usual(rng)
        return {part: value * (2 if worker == 0 else 1) for part, value in own.items()}

    for seed in range(10):
        assert [(found.task, found.part) for _, found in _run(cost, seed=seed)] == [(0, "computing")]


@pytest.mark.parametrize("workers", [2, 4])
def test_nobody_is_named_in_quiet_runs(workers: int) -> None:
    for seed in range(50):
        assert _run(lambda worker, now, rng: _usual(rng), workers=workers, seed=seed) == []


def test_one_long_pause_names_nobody() -> None:
    paused = iter([3.0])

    def cost(worker: int, now: float, rng: random.Random) -> dict[str, float]:
        own = _usual(rng)
        if worker == 1 and now > 12.0:
            own["between"] += next(paused, 0.0)
        return own

    assert _run(cost) == []


def test_long_steps_are_seen_over_a_longer_time() -> None:
    def cost(worker: int, now: float, rng: random.Random) -> dict[str, float]:
        return {"computing": 4.0 if worker == 2 else 2.0, "exchanging": 0.1}

    named = _run(cost, seconds=200.0)
    assert [(found.task, found.part) for _, found in named] == [(2, "computing")]
    assert named[0][1].extra == pytest.approx(2.0, rel=0.1)


def test_where_waits_are_not_seen_only_what_is_surely_a_workers_own_counts() -> None:
    quick = Spent(input=0.1, computing=1.9)  # of which it waits for the other one, inside a program
    assert find_straggler([quick, Spent(input=1.0, computing=1.0)], [10, 10]) == Straggler(1, "input", 0.09, 0.2)
    assert find_straggler([quick, Spent(input=0.1, computing=1.9)], [10, 10]) is None


def test_starts_and_compilations_name_nobody() -> None:
    slow = Spent(computing=2.0, exchanging=0.1)
    for other in (Spent(computing=1.0, exchanging=0.1, compiling=1.0), Spent(starting=1.0, computing=1.0)):
        assert find_straggler([slow, other], [10, 10]) is None


def test_the_chief_that_saves_is_not_slow() -> None:
    chief, other = Spent(computing=1.0, exchanging=0.1, saving=2.0), Spent(computing=1.0, exchanging=0.1, waiting=2.0)
    assert find_straggler([chief, other], [10, 10]) is None


def test_a_worker_alone_is_not_slow() -> None:
    stragglers = Stragglers()
    assert stragglers.look([Reading(1.0, 10, Spent(computing=1.0))]) is None
