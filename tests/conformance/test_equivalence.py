"""Any number of replicas, on any split into devices and processes, trains with the numbers of one device.

One replica must agree with plain Keras in every bit. In single precision rounding hides a small fault, so all
rows run on virtual devices in double precision; in single precision they run on 2 real workers, shapes of data that are
read apart on 4, and some rows on virtual devices too, also with variables at a centre.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.conformance.runs import (
    CHOSEN_STAGES,
    QUICK,
    QUICK_ELSEWHERE,
    SHARDED_ON_WORKERS,
    UPDATED_ELSEWHERE,
    Outcome,
    central,
    check,
    double_precision,
    grouped,
    in_tiers,
    is_chosen,
    mirrored,
    needs_whole_table,
    on_workers,
    on_workers_in_shards,
    reference,
    rows_for,
    sharded,
    sizes_of,
)
from tests.conformance.table import ALL, EXCEPTIONS, FLOAT32, FLOAT64, ROWS, run


@pytest.mark.thorough
@pytest.mark.parametrize("name", in_tiers(ROWS))
def test_the_reference_is_worth_comparing_with(name: str) -> None:
    """Numbers that are not finite, or the same in every epoch, would prove nothing."""
    record = reference(name)
    assert all(np.isfinite(value).all() for value in record.values())
    losses = record["history/loss"] if "history/loss" in record else record["history/renamed"]
    assert len(losses) >= 3
    assert len(set(losses.tolist())) == len(losses)


@pytest.mark.parametrize("name", in_tiers(ALL))
def test_one_replica_is_plain_keras_in_every_bit(name: str) -> None:
    check(run(ALL[name], mirrored(1)), reference(name), None)


@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        *(
            pytest.param(row.name, replicas, marks=() if replicas == 3 and row.name in QUICK else pytest.mark.thorough)
            for row in ROWS.values()
            if not row.float64
            for replicas in (2, 3, 4)
        ),
        *(
            pytest.param(row.name, 3, marks=() if row.name in QUICK else pytest.mark.thorough)
            for row in ROWS.values()
            if row.on_batch
        ),
    ],
)
def test_virtual_devices(name: str, replicas: int) -> None:
    check(run(ROWS[name], mirrored(replicas)), reference(name), ROWS[name].float32)


# What passes the centre differs from the other strategies: the state, the update, and the cut between steps.
@pytest.mark.parametrize("name", in_tiers(UPDATED_ELSEWHERE, QUICK_ELSEWHERE))
def test_variables_at_a_centre(name: str) -> None:
    check(run(ROWS[name], central()), reference(name), ROWS[name].float32)


def _in_shards() -> list[Any]:
    """Return stage, replicas and row for all rows; `make test-table` runs those that differ from others least."""
    cases = []
    for stage, replicas, name in itertools.product(("optimizer", "gradients", "parameters"), (1, 2, 3, 4), ROWS):
        chosen = name in UPDATED_ELSEWHERE and (stage, replicas) in CHOSEN_STAGES
        # The second stage differs from the first where gradients are accumulated.
        chosen |= (stage, replicas) == ("gradients", 2) and "accumulation" in name
        quick = name in QUICK_ELSEWHERE and (stage, replicas) == ("parameters", 2)
        mark = () if quick else pytest.mark.thorough if chosen else pytest.mark.table
        cases.append(pytest.param(stage, replicas, name, marks=mark))
    return cases


# On three replicas some axes divide and others do not, and some replicas have no rows of a batch.
@pytest.mark.parametrize(("stage", "replicas", "name"), _in_shards())
def test_variables_in_shards(stage: str, replicas: int, name: str) -> None:
    check(run(ROWS[name], sharded(stage, replicas)), reference(name), ROWS[name].float32)


# XLA divides the computation of a replica among its devices, whatever it computes.
@pytest.mark.parametrize(
    ("shard", "name"),
    [
        pytest.param(shard, name, marks=() if name == "uneven" and shard is None else pytest.mark.thorough)
        for shard in (None, "parameters")
        for name in UPDATED_ELSEWHERE
    ],
)
def test_replicas_of_several_devices(shard: str | None, name: str) -> None:
    check(run(ROWS[name], grouped(shard)), reference(name), ROWS[name].float32)


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("workers", "stage", "name"),
    [(workers, stage, name) for (workers, stage), names in SHARDED_ON_WORKERS.items() for name in names],
)
def test_workers_with_shards(workers: int, stage: str, name: str) -> None:
    first, *others = [outcomes[name] for outcomes in on_workers_in_shards(workers, stage)]
    for other in others:
        check(other, first, None)
    check(first, reference(name), ROWS[name].float32)


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("name", "replicas"), [(row.name, size) for row in ROWS.values() if row.float64 for size in sizes_of(row.name)]
)
def test_virtual_devices_in_double_precision(name: str, replicas: int) -> None:
    outcomes = double_precision()[name]
    check(outcomes[replicas], outcomes[0], FLOAT64)


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("workers", "name"),
    [
        pytest.param(workers, name, marks=pytest.mark.quick if is_chosen(workers, name) else ())
        for workers in (2, 4)
        for name in rows_for(workers)
        if name in ROWS
    ],
)
def test_workers(workers: int, name: str) -> None:
    first = _alike(name, workers)
    check(first, reference(name), ROWS[name].float32)


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_do_not_depend_on_where_replicas_run(name: str) -> None:
    check(_alike(name, workers=4), run(EXCEPTIONS[name], mirrored(4)), FLOAT32)


def _alike(name: str, workers: int) -> Outcome:
    """Return what all workers recorded, the same in every bit."""
    first, *others = on_workers(workers, name)
    for other in others:
        check(other, first, None)
    return first
