"""Sums over replicas are timed, and examples counted."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import stratagem
from stratagem.data import Dataset
from stratagem.doctor.measure import check_dataset, measure_sums


def strategy_of(replicas: int) -> stratagem.MirroredStrategy:
    return stratagem.MirroredStrategy(jax.devices()[:replicas])


def alone(said: Any) -> list[Any]:
    return [said]


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_example_is_counted_once(replicas: int) -> None:
    data = {"x": np.arange(44).reshape(22, 2), "y": np.arange(22)}
    dataset = Dataset.from_tensor_slices(data).shuffle(22).batch(5)
    finding = check_dataset(strategy_of(replicas), dataset, alone)
    assert (finding.verdict, finding.found) == ("ok", "each of 22 examples once (shares: 22)")


def test_examples_that_come_twice_or_never_are_seen() -> None:
    dataset = Dataset.range(12).batch(4)
    twice = check_dataset(strategy_of(2), dataset, lambda said: [said, said])
    assert (twice.verdict, "12 examples, of which the workers read 24" in twice.found) == ("FAIL", True)
    never = check_dataset(strategy_of(2), dataset, lambda said: [[12, str(int(said[1]) ^ 1)]])
    assert never.verdict == "FAIL"
    assert check_dataset(strategy_of(2), dataset.repeat(), alone).verdict == "FAIL"


def test_sums_are_timed_by_the_clock() -> None:
    ticks = iter(range(1000))
    finding = measure_sums(strategy_of(2), clock=lambda: 0.001 * next(ticks))
    assert finding.verdict == "ok"
    assert finding.found == "1.0 ms for one value, 15.62 GiB/s for 16 MiB, over 2 replicas"
    slow = measure_sums(strategy_of(2), clock=lambda: 0.03 * next(ticks))
    assert (slow.verdict, "30.0 ms for one value" in slow.found) == ("warn", True)
    assert measure_sums(strategy_of(1)).found == "one replica: nothing travels"
