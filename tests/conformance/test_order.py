"""The order of the examples does not depend on the number of replicas or workers.

Every example is seen exactly once an epoch, and at each step the shares side by side are the same global batch.
The metric of `order.py` records it inside the compiled steps, in real runs.
"""

from __future__ import annotations

import functools
import itertools

import pytest
from tests.conformance.order import BATCH, EPOCHS, INPUTS, ROWS, STEPS, Batches, batches_seen, seen_on_worker
from tests.conformance.runs import TABLE_SECONDS, mirrored, needs_whole_table

from stratagem.testing import run_workers

IN_ORDER = [list(range(start, min(start + BATCH, ROWS))) for start in range(0, ROWS, BATCH)]


@functools.cache
def _cluster(workers: int) -> list[dict[str, Batches]]:
    return [result.value for result in run_workers(seen_on_worker, workers, timeout_seconds=TABLE_SECONDS)]


@functools.cache
def _on_devices(name: str, replicas: int) -> Batches:
    return batches_seen(name, mirrored(replicas))


def _check_each_row_once_an_epoch(batches: Batches) -> None:
    assert [len(batch) for batch in batches] == [len(batch) for batch in IN_ORDER] * EPOCHS
    for epoch in range(EPOCHS):
        seen = [row for batch in batches[epoch * STEPS : (epoch + 1) * STEPS] for row in batch]
        assert sorted(seen) == list(range(ROWS))


def _check_each_row_once_a_pass(batches: Batches) -> None:
    """The same where batches go across the end of the data: a pass ends in the midst of one."""
    assert [len(batch) for batch in batches] == [BATCH] * STEPS * EPOCHS
    seen = [row for batch in batches for row in batch]
    for start in range(0, len(seen) - ROWS + 1, ROWS):
        assert sorted(seen[start : start + ROWS]) == list(range(ROWS))


def _check(name: str, batches: Batches) -> None:
    """Check what one run saw against the definition of an epoch, and against the run on one replica."""
    if "repeated" in name:
        _check_each_row_once_a_pass(batches)
    else:
        _check_each_row_once_an_epoch(batches)
    assert batches == _on_devices(name, 1)


@pytest.mark.parametrize("name", ["arrays", "generator", "PyDataset", *(name for name in INPUTS if "grain" in name)])
def test_the_recorder_sees_what_plain_keras_reads(name: str) -> None:
    assert batches_seen(name, None) == IN_ORDER * EPOCHS


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INPUTS)
def test_one_replica(name: str) -> None:
    batches = _on_devices(name, 1)
    if "shuffled" in name:
        epochs = [batches[epoch * STEPS : (epoch + 1) * STEPS] for epoch in range(EPOCHS)]
        assert all(epoch != other for epoch, other in itertools.combinations([IN_ORDER, *epochs], 2))
    elif name == "repeated dataset":
        assert [row for batch in batches for row in batch] == [i % ROWS for i in range(BATCH * STEPS * EPOCHS)]
    else:
        assert batches == IN_ORDER * EPOCHS


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "replicas", [1, pytest.param(2, marks=pytest.mark.thorough), 3, pytest.param(4, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("name", INPUTS)
def test_virtual_devices(name: str, replicas: int) -> None:
    _check(name, _on_devices(name, replicas))


@needs_whole_table
@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", INPUTS)
def test_workers(name: str, workers: int) -> None:
    first, *others = [seen[name] for seen in _cluster(workers)]
    assert all(other == first for other in others)
    _check(name, first)
