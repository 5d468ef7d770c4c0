"""A custom loop that differs from plain Keras and JAX only by the strategy ends with the same weights.

As in test_equivalence: in double precision on 3 virtual devices, where a wrong rule cannot hide behind rounding, shares
differ where a batch does not divide, and sums have no exact parts; in single precision on one replica and on two real
workers.
"""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
from tests.conformance.loops import DROPOUT, LOOPS, PER_REPLICA, run_loop, run_plain
from tests.conformance.runs import (
    TABLE_SECONDS,
    Outcome,
    begin_double_precision,
    begin_worker,
    central,
    check,
    mirrored,
    needs_whole_table,
    outcome,
    own_half,
)
from tests.conformance.table import FLOAT32, FLOAT64, Record, differences

import stratagem
from stratagem.testing import run_workers

IN_DOUBLE_PRECISION = 3
ALL = {**LOOPS, **PER_REPLICA}
CHOSEN = ("adam, uneven", "batch norm, uneven")
"""Those that `make test` runs, here and on two workers."""


@functools.cache
def reference(name: str, shares: int = 1) -> Record:
    """Run a loop on plain Keras and JAX."""
    return run_plain(ALL[name], shares)


def expected(name: str, replicas: int) -> Record:
    """Return the reference for so many replicas: it depends on their number only where each has a rule of its own."""
    return reference(name, replicas) if name in PER_REPLICA else reference(name)


@pytest.mark.parametrize(
    "name", [name if name in CHOSEN else pytest.param(name, marks=pytest.mark.thorough) for name in ALL]
)
def test_one_replica(name: str) -> None:
    check(run_loop(ALL[name], mirrored(1)), reference(name), ALL[name].float32)


@pytest.mark.thorough
def test_dropout_is_reproducible_and_differs_between_replicas() -> None:
    first = run_loop(DROPOUT, mirrored(2))
    assert differences(run_loop(DROPOUT, mirrored(2)), first, None) == []
    assert differences(run_plain(DROPOUT), first, FLOAT32) != []

    strategy = mirrored(4)
    with strategy.scope():
        layer = keras.layers.Dropout(0.5, seed=3)
    masks = strategy.run(lambda: layer(keras.ops.ones((2, 64)), training=True))
    rows = np.concatenate([np.asarray(mask) for mask in strategy.experimental_local_results(masks)])
    assert len(np.unique(rows, axis=0)) == len(rows) == 8


# Double precision ----------------------------------------------------------------------------------


def in_double_precision(names: list[str]) -> dict[str, tuple[Outcome, Outcome]]:
    """Run every other loop on virtual devices and without a strategy."""
    begin_double_precision()
    size = IN_DOUBLE_PRECISION
    return {
        name: (outcome(lambda n=name: run_loop(ALL[n], mirrored(size))), expected(name, size))
        for name in own_half(names)
    }


@functools.cache
def double_precision() -> dict[str, tuple[Outcome, Outcome]]:
    names = [loop.name for loop in ALL.values() if loop.float64]
    results = run_workers(
        in_double_precision, 2, args=[names], devices_per_worker=IN_DOUBLE_PRECISION, timeout_seconds=TABLE_SECONDS
    )
    return {name: outcomes for result in results for name, outcomes in result.value.items()}


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize("name", [loop.name for loop in ALL.values() if loop.float64])
def test_virtual_devices_in_double_precision(name: str) -> None:
    check(*double_precision()[name], FLOAT64)


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("name", [loop.name for loop in ALL.values() if not loop.float64])
def test_virtual_devices(name: str, replicas: int) -> None:
    check(run_loop(ALL[name], mirrored(replicas)), expected(name, replicas), ALL[name].float32)


@pytest.mark.parametrize(
    "name",
    [
        "adam, uneven",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("global_clipnorm", "loss scale shrinks and grows", "accumulation")
        ),
    ],
)
def test_variables_at_a_centre(name: str) -> None:
    check(run_loop(ALL[name], central()), reference(name), ALL[name].float32)


# Two workers ---------------------------------------------------------------------------------------


# What an optimizer does with what was exchanged, and even batches where uneven ones are here, is seen above.
ON_WORKERS = [
    name
    for name in [*ALL, DROPOUT.name]
    if name not in ("sgd, momentum", "clipnorm", "clipvalue") and f"{name}, uneven" not in ALL
]


def on_worker(names: list[str]) -> dict[str, Outcome]:
    """Run all loops as one worker of a cluster."""
    begin_worker()
    strategy = stratagem.MultiWorkerMirroredStrategy()
    loops_by_name = {**ALL, DROPOUT.name: DROPOUT}
    return {name: outcome(lambda n=name: run_loop(loops_by_name[n], strategy)) for name in names}


@functools.cache
def workers(chosen: bool) -> list[dict[str, Outcome]]:
    """Run the chosen loops, or all others, on two workers."""
    names = [name for name in ON_WORKERS if (name in CHOSEN) == chosen]
    results = run_workers(on_worker, 2, args=[names], timeout_seconds=TABLE_SECONDS)
    return [result.value for result in results]


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.quick if name in CHOSEN else ()) for name in ON_WORKERS]
)
def test_two_workers(name: str) -> None:
    chief, other = (outcomes[name] for outcomes in workers(name in CHOSEN))
    check(other, chief, None)
    if name == DROPOUT.name:  # its streams belong to replicas, wherever these run
        check(chief, run_loop(DROPOUT, mirrored(2)), FLOAT32)
    else:
        check(chief, expected(name, 2), ALL[name].float32)
