"""Sums over replicas are timed."""

from __future__ import annotations

import jax

import stratagem
from stratagem.doctor.measure import measure_sums


def strategy_of(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy(jax.devices()[:replicas])


def test_sums_are_timed_by_the_clock() -> None:
    ticks = iter(range(1000))
    finding = measure_sums(strategy_of(2), clock=lambda: 0.001 * next(ticks))
    assert finding.verdict == "ok"
    assert finding.found == "1.0 ms for one value, 15.62 GiB/s for 16 MiB, over 2 replicas"
    slow = measure_sums(strategy_of(2), clock=lambda: 0.03 * next(ticks))
    assert (slow.verdict, "30.0 ms for one value" in slow.found) == ("warn", True)
    assert measure_sums(strategy_of(1)).found == "one replica: nothing to exchange"
