"""The estimate of a step's time."""

from __future__ import annotations

import pytest

from stratagem.plan.compiled_step import Bytes, CompiledStep
from stratagem.plan.costs import Link
from stratagem.plan.estimate import Estimate, estimated
from stratagem.plan.place import place_of
from stratagem.plan.schedule import Collective, Schedule


def compiled(place: str, hosts: int = 1, collectives: tuple[Collective, ...] = ()) -> CompiledStep:
    where = place_of(place)
    schedule = Schedule(collectives, moved=33_520_000_000, host_calls=0)
    used = Bytes(100, 10, 2, 20, 5, 1, 100)
    return CompiledStep("step", where, where.devices, hosts, 1.0, 80, used, schedule, {"bfloat16": 989_000_000_000})


def test_arithmetic_and_bytes_at_the_published_peaks() -> None:
    estimate = estimated(compiled("h100"), Link())
    assert estimate is not None
    assert estimate.computing == pytest.approx(1e-3)  # 989 Gflop at 989 Tflop a second
    assert estimate.moving == pytest.approx(10e-3)  # 33.52 GB at 3.352 TB a second
    assert (estimate.exchanging, estimate.hidden) == (0.0, 0.0)
    assert estimate.shortest == pytest.approx(10e-3)
    assert estimate.longest == pytest.approx(11e-3)
    assert estimate.efficiency == (1.0, 1.0)


def test_sums_within_a_host_and_between_hosts() -> None:
    # A ring of 8 moves 2 x 7/8 of 450 MB at 450 GB a second; one of two hosts moves 2 x 1/2 of it at 1 GB a second.
    collectives = (Collective("all-reduce", 450_000_000),)
    within = estimated(compiled("h100:8", 1, collectives), Link(seconds_per_byte=1e-9))
    between = estimated(compiled("2x8xh100", 2, collectives), Link(seconds_per_byte=1e-9))
    assert within is not None
    assert between is not None
    assert within.exchanging == pytest.approx(1.75e-3)
    assert between.exchanging == pytest.approx(1.75e-3 + 0.45)


def test_what_moves_beside_a_sum_hides_it() -> None:
    # 3.352 GB take 1 ms of the 1.75 ms that the sum takes.
    half = (Collective("all-reduce", 450_000_000, beside=3, backward=3, moved=3_352_000_000),)
    estimate = estimated(compiled("h100:8", 1, half), Link())
    assert estimate is not None
    assert estimate.hidden == pytest.approx(1 / 1.75)
    assert estimate.shortest == pytest.approx(10.75e-3)
    assert estimate.longest == pytest.approx(12.75e-3)


def test_a_sum_that_takes_longer_than_all_computing_is_seen() -> None:
    estimate = Estimate(computing=1.0, moving=2.0, exchanging=10.0, hidden=1.0)
    assert estimate.shortest == pytest.approx(10.0)
    low, high = estimate.efficiency
    assert (round(low, 3), round(high, 3)) == (0.167, 0.231)


def test_there_is_none_without_peaks() -> None:
    assert estimated(compiled("cpu:2"), Link()) is None
